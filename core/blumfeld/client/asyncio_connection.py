"""The client on an asyncio loop: many requests on their way, a future for each.

It is an ``asyncio.Protocol``, so it needs no task of its own. A network that isn't asyncio's, such as the simulation's,
calls the same two methods.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from blumfeld.client.connection import BEFORE_SERVICE, ClientConnection
from blumfeld.client.errors import NO_HOST_NAME, CutFrameError, NotLetInError, NotSecuredError, not_served
from blumfeld.client.frames import FRAME_BYTES_MAX
from blumfeld.client.versions import Handshake, Range
from blumfeld.config.addresses import address_text
from blumfeld.wire.messages.api_versions import ApiVersionsResponse
from blumfeld.wire.primitives import DecodeError
from blumfeld.wire.schema import Message

if TYPE_CHECKING:
    from blumfeld.client.security.command_config import ClientSecurity
    from blumfeld.client.security.sasl import Credentials

R = TypeVar("R", bound=Message)


class AsyncioConnection(asyncio.Protocol):
    """One connection. :func:`connect` makes it over TCP.

    :param write: puts bytes on the wire; it may not block
    :param hang_up: closes the wire; it is called once, when the server broke the protocol or :meth:`close` was called
    :param where: the server's address, for errors; empty where the wire has none
    :param protocol: the client's ``security.protocol``, for errors
    """

    def __init__(
        self,
        client_id: str,
        write: Callable[[bytes], None] | None = None,
        hang_up: Callable[[], None] | None = None,
        *,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        where: str = "",
        protocol: str = "PLAINTEXT",
    ) -> None:
        self.state = ClientConnection(client_id, frame_bytes_max=frame_bytes_max)
        self._where = where
        self._protocol = protocol
        self._is_answered = self._is_served = False
        self._write = write
        self._hang_up = hang_up
        self._lost: Exception | None = None

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._lost is None

    def send(self, request: Message, version: int | None = None) -> asyncio.Future[Message]:
        """Send a request. The future has its answer, or ``ConnectionError``.

        For a request without an answer (Produce with ``acks=0``) the future stays open.
        """
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        if self._lost is not None:
            _fail(answer, self._lost)
            return answer
        assert self._write is not None, "not connected yet"
        self._write(self.state.frame(request, version, answer))
        return answer

    async def ask(self, request: Message, expected: type[R], version: int | None = None) -> R:
        """Send a request, and wait for its answer.

        :raises ConnectionError: the connection is lost, or the server broke the protocol
        """
        answer = await self.send(request, version)
        assert isinstance(answer, expected)
        return answer

    async def negotiate(self, spoken: Mapping[int, Range]) -> None:
        """Agree on versions: from now on a request needs to name none.

        :raises NoCommonVersionError: see :class:`~blumfeld.client.versions.Handshake`
        :raises RefusedError: the server does not say what it speaks
        """
        handshake = Handshake(spoken)
        while handshake.versions is None:
            handshake.answered(await self.ask(handshake.request, ApiVersionsResponse, handshake.version))
        self.state.versions = handshake.versions

    def close(self, reason: str = "closed by the client") -> None:
        """Hang up. What waits fails; harmless twice."""
        self._give_up(ConnectionAbortedError(reason))

    # From the network

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The loop has connected."""
        stream = cast("asyncio.Transport", transport)
        # A close of TLS waits for the other side's alert, for longer than the loop of a tool lives.
        has_tls = stream.get_extra_info("ssl_object") is not None
        self._write, self._hang_up = stream.write, stream.abort if has_tls else stream.close

    def data_received(self, data: bytes) -> None:
        """Take bytes from the network. See :meth:`broke_protocol` for bytes that are no answers."""
        if self._lost is not None:
            return
        self.state.receive(data)
        try:
            for answer in self.state.answers():
                self._is_answered = True
                self._is_served = self._is_served or answer.request.api_key not in BEFORE_SERVICE
                future: asyncio.Future[Message] = answer.request.token
                if not future.done():  # its caller may have given up
                    future.set_result(answer.message)
        except DecodeError as error:
            self.broke_protocol(error)

    def broke_protocol(self, error: DecodeError) -> None:
        """Hang up on a server that sent bytes that are no answer. The simulation overrides this: there it is a bug."""
        self._give_up(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has gone: what waits fails with the reason."""
        if exc is None:
            try:
                self.state.receive(b"")
                exc = ConnectionResetError("the server closed the connection")
            except ConnectionError as error:
                exc = error
        self._hang_up = None
        self._give_up(self._told(exc))

    def _told(self, error: Exception) -> Exception:
        """Returns the error with what a person can do about it, where the server has served nothing yet."""
        if not self._where or self._is_served or isinstance(error, CutFrameError):
            return error
        if isinstance(error, ConnectionError) or not isinstance(error, OSError):
            return not_served(self._where, self._protocol, answered=self._is_answered)
        from blumfeld.client.security.tls import failed_handshake

        return failed_handshake(self._where, error)

    def _give_up(self, reason: Exception) -> None:
        if self._lost is not None:
            return
        self._lost = reason
        if self._hang_up is not None:
            self._hang_up()
        for waiting in self.state.end():
            if not waiting.token.done():
                _fail(waiting.token, reason)


def _fail(answer: asyncio.Future[Message], reason: Exception) -> None:
    """Fail a request with an exception of its own: one that is raised in two tasks would mix their tracebacks."""
    if isinstance(reason, NotLetInError):
        error: ConnectionError = type(reason)(reason.where, reason.reason)
    else:
        kind = type(reason) if isinstance(reason, ConnectionError) else ConnectionError
        error = kind(str(reason))
    error.__cause__ = reason
    answer.set_exception(error)
    answer.exception()  # the loop warns of no answer that nobody waits for


async def connect(
    host: str, port: int, client_id: str, security: ClientSecurity | None = None
) -> AsyncioConnection:
    """Connect over TCP with the running loop.

    :param security: TLS, and the login that is done before this returns; ``None`` for neither
    :raises OSError: no server listens there
    :raises NotSecuredError: TLS or the login failed
    """
    loop = asyncio.get_running_loop()
    where = address_text(host, port)
    protocol = "PLAINTEXT" if security is None else security.protocol
    context = None if security is None else security.context
    try:
        _, connection = await loop.create_connection(
            lambda: AsyncioConnection(client_id, where=where, protocol=protocol),
            host,
            port,
            ssl=context,
            server_hostname=None if context is None else host,
        )
    except UnicodeError:  # of IDNA
        raise OSError(NO_HOST_NAME.format(host)) from None
    except OSError as error:
        if context is None or isinstance(error, ConnectionRefusedError):
            raise
        from blumfeld.client.security.tls import failed_handshake

        raise failed_handshake(where, error) from error
    if security is not None and security.credentials is not None:
        try:
            await _log_in(connection, security.credentials(), where)
        except BaseException:
            connection.close()
            raise
    return connection


async def _log_in(connection: AsyncioConnection, credentials: Credentials, where: str) -> None:
    from blumfeld.client.security.refusals import LoginRefused
    from blumfeld.client.security.sasl import VERSION, Salting, login_steps
    from blumfeld.client.security.scram import NONCE_BYTES, nonce_of

    steps = login_steps(credentials, lambda: nonce_of(secrets.token_bytes(NONCE_BYTES)))
    given: Any = None
    try:
        while True:
            effect = steps.send(given)
            if isinstance(effect, Salting):
                given = await asyncio.to_thread(effect.salted)
            else:
                given = await connection.send(effect, VERSION)
    except StopIteration:
        return
    except LoginRefused as refusal:
        raise NotSecuredError(where, credentials.refused(refusal.reason)) from None
