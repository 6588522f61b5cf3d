"""The client over a blocking socket. It has one caller and waits for each answer."""

from __future__ import annotations

import socket
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Self, TypeVar

from blumfeld.client.connection import Answer, ClientConnection
from blumfeld.client.errors import ConnectionEndedError, CutFrameError
from blumfeld.client.frames import FRAME_BYTES_MAX, SIZE_BYTES, frame_size
from blumfeld.client.versions import Handshake, Range
from blumfeld.wire.messages.api_versions import ApiVersionsResponse
from blumfeld.wire.schema import Message

R = TypeVar("R", bound=Message)

BUFFER_BYTES = 1 << 16
DISCARD_BYTES = 1 << 20


class FrameSocket:
    """A connected socket that gives whole frames. Every wait ends after ``timeout_s`` with TimeoutError.

    :param reuse: read all frames into the same memory; a frame is valid until the next. Large frames come faster so,
        because memory that is new to a process has to be mapped first
    :param source_host: the address of this machine that the server sees; by default the system chooses
    :raises OSError: no server listens there
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
    ) -> None:
        self.socket = socket.create_connection((host, port), timeout_s, (source_host, 0))
        # Nagle's algorithm would hold a small request back until the answer before it was acknowledged.
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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
            got = self.socket.recv_into(view[at:], 0, socket.MSG_WAITALL)
            if not got:
                if begun or at:
                    raise CutFrameError(f"the server closed the connection after {at} of {size} bytes")
                raise ConnectionEndedError("the server closed the connection")
            at += got


class BlockingConnection:
    """One connection. What goes wrong is an ``OSError`` or a ``DecodeError``; the connection is of no more use then.

    :param frame_bytes_max: the largest answer that is taken
    :param reuse: see :class:`FrameSocket`; records of an answer are valid until the next one
    :raises OSError: no server listens there
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
    ) -> None:
        self.state = ClientConnection(client_id)
        self._socket = FrameSocket(host, port, timeout_s, frame_bytes_max=frame_bytes_max, reuse=reuse)

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
        """Wait for the answer to the oldest request that has none."""
        return self.state.take(self._socket.receive())

    def close(self) -> None:
        """Hang up; harmless twice."""
        self._socket.close()
