"""Logins of simulated clients, by the same code that logs a node in at another one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from blumfeld.client.security.sasl import PLAIN, Credentials
from blumfeld.spi.completion import Completion
from blumfeld.spi.runtime import Random
from blumfeld.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from blumfeld.wire.schema import Message
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.simulation.clients.client import ClientConnection, Reach
from blumfeld_kit.simulation.clients.routes import Routes
from blumfeld_kit.simulation.secured.nodes import ADMIN, password_of
from blumfeld_security.sasl.peer_login import PeerLogin

AGAIN_AT = 0.6
"""Part of a session after which a client logs in again. Clocks differ by a quarter."""


class LoginRefusedError(ConnectionError):
    """The broker refuses a login."""


async def log_in(connection: ClientConnection, login: PeerLogin) -> float | None:
    """Log in, for the first time or again. Return the length of the session in seconds; ``None`` for one without end.

    :raises LoginRefusedError: the broker refuses
    :raises OSError: the connection is lost
    """
    dialled = _Dialled(connection)
    try:
        lifetime_ms = await login.authenticate(dialled)
    except ConnectionError as error:
        if dialled.refused is not None:
            raise LoginRefusedError(dialled.refused) from error
        raise
    return None if lifetime_ms is None else lifetime_ms / 1_000


class _Dialled:
    """Implements ``spi.security.Dialled``."""

    def __init__(self, connection: ClientConnection) -> None:
        self.refused: str | None = None
        """The text of a refusal."""
        self._connection = connection

    def send(self, request: Message, version: int, answer: Completion[Message]) -> None:
        waiting = self._connection.wait(self._connection.send(request, version))
        task = asyncio.get_running_loop().create_task(waiting)
        task.add_done_callback(partial(self._answered, answer))

    def _answered(self, answer: Completion[Message], task: asyncio.Task[Message]) -> None:
        if task.cancelled():
            answer.fail(ConnectionAbortedError("the client has ended"))
        elif (error := task.exception()) is not None:
            assert isinstance(error, Exception)
            answer.fail(error)
        else:
            response = task.result()
            if isinstance(response, SaslAuthenticateResponse) and response.error_code:
                self.refused = response.error_message or f"error {response.error_code}"
            answer.complete(response)


class AdminRoutes(Routes):
    """The routes of a client that may do everything. It logs in again in time."""

    def __init__(
        self,
        name: str,
        network: Reach,
        random: Random,
        bootstrap: Sequence[tuple[str, int]],
        runtime: FakeRuntime,
    ) -> None:
        super().__init__(name, network, random, bootstrap)
        self._login = PeerLogin(runtime, Credentials(PLAIN, ADMIN, password_of(ADMIN)))
        self._again_s: dict[tuple[str, int], tuple[ClientConnection, float]] = {}
        """Address → connection, and when it logs in again."""

    async def connection(self, address: tuple[str, int]) -> ClientConnection:
        """As ``Routes.connection``, logged in."""
        connection = await super().connection(address)
        logged_in, again_s = self._again_s.get(address, (None, 0.0))
        now_s = self.network.loop.time()
        if logged_in is not connection or now_s >= again_s:
            try:
                lifetime_s = await log_in(connection, self._login)
            except OSError:
                if connection.is_open:
                    connection.close()
                raise
            again_s = float("inf") if lifetime_s is None else now_s + lifetime_s * AGAIN_AT
            self._again_s[address] = (connection, again_s)
        return connection
