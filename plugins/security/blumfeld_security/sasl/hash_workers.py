"""The workers that hash passwords: a few at once, and addresses take turns at them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from blumfeld.client.security.refusals import LoginRefused
from blumfeld.spi.completion import Completion
from blumfeld.spi.runtime import Runtime
from blumfeld_security.addresses import origin

T = TypeVar("T")
WORKERS = 2
"""Passwords that are hashed at once. The runtime has more workers, so that logins never hold up a cold read."""
WAITING_MAX = 2_000
"""Logins that wait for a worker. Hashing takes tens of milliseconds, so clients of a longer queue have given up."""


class HashWorkers:
    """The workers of one node, for all its mechanisms."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._hashing = 0
        self._waiting: dict[str, deque[Completion[None]]] = {}
        """Client by address → its logins that wait for a worker. They take turns; the next one stands first."""
        self._waiting_count = 0

    async def hash(self, address: str, work: Callable[..., T], *args: Any) -> T:
        """Returns ``work(*args)``, which hashes a password, when it is this address's turn.

        :raises LoginRefused: too many logins wait
        """
        client = origin(address)
        turn = self._turn(client)
        try:
            await turn
            return await self._runtime.offload(work, *args)
        finally:
            self._end(client, turn)

    def _end(self, client: str, turn: Completion[None]) -> None:
        """Give the worker to the next login. A login that has none was cancelled while it waited, or refused."""
        if not turn.done:
            self._taken(client, self._waiting[client].index(turn))
        elif turn.error is None and self._waiting:
            self._taken(next(iter(self._waiting)), 0).complete(None)
        elif turn.error is None:
            self._hashing -= 1

    def _turn(self, client: str) -> Completion[None]:
        """Returns what completes when a worker is free. Where too many wait, a client with less than its share takes
        the place of the last login of the client with most.

        :raises LoginRefused: the client has its share
        """
        if self._hashing < WORKERS:
            self._hashing += 1
            return Completion.of(None)
        if self._waiting_count >= WAITING_MAX:
            own = len(self._waiting.get(client, ()))
            if own >= WAITING_MAX // (len(self._waiting) + (not own)):
                raise _too_many()
            self._taken(max(self._waiting, key=lambda each: len(self._waiting[each])), -1).fail(_too_many())
        turn: Completion[None] = Completion()
        self._waiting.setdefault(client, deque()).append(turn)
        self._waiting_count += 1
        return turn

    def _taken(self, client: str, place: int) -> Completion[None]:
        """Take a login of this client out; its others stand behind those of the other clients then."""
        logins = self._waiting.pop(client)
        turn = logins[place]
        del logins[place]
        if logins:
            self._waiting[client] = logins
        self._waiting_count -= 1
        return turn


def _too_many() -> LoginRefused:
    return LoginRefused(f"{WAITING_MAX} logins wait for the hash of their password", "Too many logins wait")
