"""The client over a blocking socket. It has one caller and waits for each answer."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from blumfeld.client.connection import BEFORE_SERVICE, Answer, ClientConnection
from blumfeld.client.errors import (
    NO_HOST_NAME,
    ConnectionEndedError,
    CutFrameError,
    NotSecuredError,
    not_served,
)
from blumfeld.client.frames import FRAME_BYTES_MAX, SIZE_BYTES, frame_size
from blumfeld.client.versions import Handshake, Range
from blumfeld.config.addresses import address_text
from blumfeld.wire.messages.api_versions import ApiVersionsResponse
from blumfeld.wire.schema import Message

if TYPE_CHECKING:
    import ssl

    from blumfeld.client.security.command_config import ClientSecurity
    from blumfeld.client.security.sasl import Credentials

R = TypeVar("R", bound=Message)

BUFFER_BYTES = 1 << 16
DISCARD_BYTES = 1 << 20


class FrameSocket:
    """A connected socket that gives whole frames. Every wait ends after ``timeout_s`` with TimeoutError.

    :param reuse: read all frames into the same memory; a frame is valid until the next. Large frames come faster so,
        because memory that is new to a process has to be mapped first
    :param source_host: the address of this machine that the server sees; by default the system chooses
    :param context: of TLS; ``None`` speaks plain text
    :raises OSError: no server listens there
    :raises NotSecuredError: the TLS handshake failed
    """

    def __init__(
        self,
        host: str,
        port: int,
        timeout_s: float,
        *,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        reuse: bool = False,
        source_host: str = "",
        context: ssl.SSLContext | None = None,
    ) -> None:
        try:
            self.socket = socket.create_connection((host, port), timeout_s, (source_host, 0))
        except UnicodeError:  # of IDNA
            raise OSError(NO_HOST_NAME.format(host)) from None
        # Nagle's algorithm would hold a small request back until the answer before it was acknowledged.
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._whole = int(socket.MSG_WAITALL)
        if context is not None:
            self.socket = in_tls(self.socket, context, host, port)
            self._whole = 0  # a socket with TLS takes no flags
        self._frame_bytes_max = frame_bytes_max
        self._size = memoryview(bytearray(SIZE_BYTES))
        self._buffer = bytearray(BUFFER_BYTES) if reuse else None

    def send(self, data: bytes) -> None:
        """Put bytes on the wire, whatever they are."""
        self.socket.sendall(data)

    def receive(self) -> memoryview:
        """Return the next frame without its size.

        :raises ConnectionEndedError: the server hung up; CutFrameError inside a frame
        :raises FrameSizeError: the frame is too large
        """
        self._fill(self._size, begun=False)
        frame = self._memory(frame_size(self._size, self._frame_bytes_max))
        self._fill(frame, begun=True)
        return frame

    def discard(self) -> int:
        """Read the next frame, however large, and keep nothing of it. Return its size in bytes.

        :raises ConnectionEndedError: as :meth:`receive`
        """
        self._fill(self._size, begun=False)
        left = size = int.from_bytes(self._size, "big")
        waste = memoryview(bytearray(min(size, DISCARD_BYTES)))
        while left > 0:
            part = waste[: min(left, DISCARD_BYTES)]
            self._fill(part, begun=True)
            left -= len(part)
        return size

    def close(self) -> None:
        """Hang up; harmless twice."""
        self.socket.close()

    def _memory(self, size: int) -> memoryview:
        if self._buffer is None:
            return memoryview(bytearray(size))
        if len(self._buffer) < size:
            self._buffer = bytearray(size + size // 4)
        return memoryview(self._buffer)[:size]

    def _fill(self, view: memoryview, *, begun: bool) -> None:
        at, size = 0, len(view)
        while at < size:
            got = self.socket.recv_into(view[at:], 0, self._whole)
            if not got:
                if begun or at:
                    raise CutFrameError(f"the server closed the connection after {at} of {size} bytes")
                raise ConnectionEndedError("the server closed the connection")
            at += got


def in_tls(plain: socket.socket, context: ssl.SSLContext, host: str, port: int) -> ssl.SSLSocket:
    """Returns a connected socket with TLS on it.

    :param host: the name that the server's certificate must have
    :raises NotSecuredError: the handshake failed; the socket is closed then
    """
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except OSError as error:
        from blumfeld.client.security.tls import failed_handshake

        plain.close()
        raise failed_handshake(address_text(host, port), error) from error


class BlockingConnection:
    """One connection. What goes wrong is an ``OSError`` or a ``DecodeError``; the connection is of no more use then.

    :param frame_bytes_max: the largest answer that is taken
    :param reuse: see :class:`FrameSocket`; records of an answer are valid until the next one
    :param security: TLS, and the login that is done before the constructor returns; ``None`` for neither
    :raises OSError: no server listens there
    :raises NotSecuredError: TLS or the login failed
    """

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        timeout_s: float,
        *,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        reuse: bool = False,
        security: ClientSecurity | None = None,
    ) -> None:
        self.state = ClientConnection(client_id)
        self._where = address_text(host, port)
        self._protocol = "PLAINTEXT" if security is None else security.protocol
        self._is_answered = self._is_served = False
        context = None if security is None else security.context
        self._has_tls = context is not None
        self._socket = FrameSocket(
            host, port, timeout_s, frame_bytes_max=frame_bytes_max, reuse=reuse, context=context
        )
        if security is not None and security.credentials is not None:
            try:
                self._log_in(security.credentials())
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def negotiate(self, spoken: Mapping[int, Range], required: Collection[int] = ()) -> None:
        """Agree on versions: from now on a request needs to name none.

        :raises NoCommonVersionError: there is none for an API in ``required``
        :raises RefusedError: the server does not say what it speaks
        """
        handshake = Handshake(spoken)
        while handshake.versions is None:
            handshake.answered(self.ask(handshake.request, ApiVersionsResponse, handshake.version))
        self.state.versions = handshake.versions.require(required)

    def _log_in(self, credentials: Credentials) -> None:
        from blumfeld.client.security.refusals import LoginRefused
        from blumfeld.client.security.sasl import VERSION, Salting, login_steps
        from blumfeld.client.security.scram import NONCE_BYTES, nonce_of

        steps = login_steps(credentials, lambda: nonce_of(secrets.token_bytes(NONCE_BYTES)))
        given: Any = None
        try:
            while True:
                effect = steps.send(given)
                given = effect.salted() if isinstance(effect, Salting) else self.ask(effect, Message, VERSION)
        except StopIteration:
            return
        except LoginRefused as refusal:
            raise NotSecuredError(self._where, credentials.refused(refusal.reason)) from None

    def ask(self, request: Message, expected: type[R], version: int | None = None) -> R:
        """Send a request, and wait for its answer. Earlier answers that were not received are dropped."""
        self.send(request, version)
        message = self.receive().message
        while self.state.waiting:
            message = self.receive().message
        assert isinstance(message, expected)
        return message

    def send(self, request: Message, version: int | None = None) -> None:
        """Send a request. Its answer is the one that :meth:`receive` gives in its turn."""
        self._socket.send(self.state.frame(request, version))

    def receive(self) -> Answer:
        """Wait for the answer to the oldest request that has none.

        :raises NotServedError: the server closed the connection before it served anything
        """
        try:
            answer = self.state.take(self._socket.receive())
        except OSError as error:
            raise self._told(error) from error
        self._is_answered = True
        self._is_served = self._is_served or answer.request.api_key not in BEFORE_SERVICE
        return answer

    def _told(self, error: OSError) -> OSError:
        """Returns the error with what a person can do about it, where the server has served nothing yet."""
        if self._is_served or isinstance(error, CutFrameError):
            return error
        if isinstance(error, TimeoutError):
            if self._is_answered or self._has_tls:
                return error
            told = f"{self._where}: no answer in time. Its listener may want TLS"
            return TimeoutError(f"{told}; the client's security.protocol is {self._protocol}")
        if isinstance(error, ConnectionError):
            return not_served(self._where, self._protocol, answered=self._is_answered)
        from blumfeld.client.security.tls import failed_handshake

        return failed_handshake(self._where, error)

    def detached(self) -> socket.socket:
        """Return the open socket, logged in, for a caller that moves bytes itself. This object is of no more use."""
        return self._socket.socket

    def close(self) -> None:
        """Hang up; harmless twice."""
        self._socket.close()
