"""A socket to a broker that sends whatever it is told to, whole frames or nonsense."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import TypeVar

from blumfeld.wire.api import response_class
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.headers import put_request_header, response_body_offset
from blumfeld.wire.schema import Message

R = TypeVar("R", bound=Message)

CLIENT_ID = "raw"
ANSWER_BYTES_MAX = 64 * 1024 * 1024


class ConnectionEnded(Exception):  # noqa: N818 - an event that a test may well expect
    """The broker closed the connection, or reset it."""


class RawConnection:
    """One blocking connection. Every wait is bounded by ``timeout_s``; a late answer raises TimeoutError."""

    def __init__(self, address: str, timeout_s: float = 15.0) -> None:
        """Connect.

        :raises OSError: nobody listens at ``address`` (``host:port``)
        """
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout_s)
        self._correlation_id = 0

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        """Put bytes on the wire as they are.

        :raises ConnectionEnded: the broker hung up before all of it was taken
        """
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ConnectionEnded(str(error)) from None

    def send_frame(self, payload: bytes) -> None:
        """Its length, and the payload."""
        self.send(struct.pack(">i", len(payload)) + payload)

    def receive_frame(self) -> bytes:
        """The next frame, without its length.

        :raises ConnectionEnded: there is none
        """
        (size,) = struct.unpack(">i", self._receive(4))
        if not 0 <= size <= ANSWER_BYTES_MAX:
            raise ConnectionEnded(f"a frame of {size} bytes is none")
        return self._receive(size)

    def discard_frame(self) -> int:
        """Read the next frame, however large, and keep nothing of it: its size in bytes.

        :raises ConnectionEnded: there is none, or it breaks off
        """
        (size,) = struct.unpack(">i", self._receive(4))
        left = size
        while left > 0:
            left -= len(self._receive(min(left, 1 << 20)))
        return int(size)

    def ends(self) -> bool:
        """Whether the broker hangs up without another byte, before the time is over."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    def request(self, message: Message, version: int) -> bytes:
        """The frame of a request, and the next correlation id taken for it."""
        key = type(message).meta.key
        assert key is not None
        self._correlation_id += 1
        return put_request_header(key, version, self._correlation_id, CLIENT_ID) + encode(message, version)

    def ask(self, message: Message, version: int, answer: type[R]) -> R:
        """Send a request, and wait for its answer.

        :raises ConnectionEnded: there was none
        """
        self.send_frame(self.request(message, version))
        return self.answer(answer, version)

    def answer(self, expected: type[R], version: int) -> R:
        """The next answer, which must be to the request sent last."""
        frame = memoryview(self.receive_frame())
        key = expected.meta.key
        assert key is not None
        assert expected is response_class(key)
        correlation_id, at = response_body_offset(frame, key, version)
        if correlation_id != self._correlation_id:
            raise AssertionError(f"the answer is to request {correlation_id}, not {self._correlation_id}")
        return decode(expected, frame, version, at)

    def close(self) -> None:
        """Hang up; harmless twice."""
        self._socket.close()

    def _receive(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            try:
                part = self._socket.recv(min(size - len(parts), 1 << 20))
            except ConnectionResetError as error:
                raise ConnectionEnded(str(error)) from None
            if not part:
                raise ConnectionEnded(f"closed after {len(parts)} of {size} bytes")
            parts += part
        return bytes(parts)
