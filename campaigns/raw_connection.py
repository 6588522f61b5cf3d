"""A socket to a broker that sends whatever it is told to, whole frames or nonsense.

It shares the reading and writing of frames with :mod:`blumfeld.client`, and none of its state, because the bytes that a
test sends need not be a request.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self, TypeVar

from blumfeld.client.blocking_connection import FrameSocket
from blumfeld.client.connection import read_answer
from blumfeld.client.errors import ConnectionEndedError, FrameSizeError
from blumfeld.client.frames import SIZE_BYTES, request_frame
from blumfeld.wire.schema import Message

R = TypeVar("R", bound=Message)

CLIENT_ID = "raw"
ANSWER_BYTES_MAX = 64 * 1024 * 1024


class ConnectionEnded(Exception):  # noqa: N818 - an event that a test may well expect
    """The broker closed the connection, or reset it."""


class RawConnection:
    """One blocking connection. Every wait is bounded by ``timeout_s``; a late answer raises TimeoutError."""

    def __init__(self, address: str, timeout_s: float = 15.0, *, source_host: str = "") -> None:
        """Connect.

        :param source_host: the address of this machine that the broker sees; by default the system chooses
        :raises OSError: nobody listens at ``address`` (``host:port``)
        """
        host, _, port = address.rpartition(":")
        self._frames = FrameSocket(
            host, int(port), timeout_s, frame_bytes_max=ANSWER_BYTES_MAX, source_host=source_host
        )
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        """Put bytes on the wire as they are.

        :raises ConnectionEnded: the broker hung up before all of it was taken
        """
        with _ends():
            self._frames.send(data)

    def send_frame(self, payload: bytes) -> None:
        """Its length, and the payload."""
        self.send(struct.pack(">i", len(payload)) + payload)

    def receive_frame(self) -> bytes:
        """The next frame, without its length.

        :raises ConnectionEnded: there is none
        """
        with _ends():
            return bytes(self._frames.receive())

    def discard_frame(self) -> int:
        """Read the next frame, however large, and keep nothing of it: its size in bytes.

        :raises ConnectionEnded: there is none, or it breaks off
        """
        with _ends():
            return self._frames.discard()

    def ends(self) -> bool:
        """Whether the broker hangs up without another byte, before the time is over."""
        try:
            return self._frames.socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    def request(self, message: Message, version: int) -> bytes:
        """The frame of a request without its length, and the next correlation id taken for it."""
        self._correlation_id += 1
        return request_frame(message, version, self._correlation_id, CLIENT_ID)[SIZE_BYTES:]

    def ask(self, message: Message, version: int, answer: type[R]) -> R:
        """Send a request, and wait for its answer.

        :raises ConnectionEnded: there was none
        """
        self.send_frame(self.request(message, version))
        return self.answer(answer, version)

    def answer(self, expected: type[R], version: int) -> R:
        """The next answer, which must be to the request sent last.

        :raises WrongCorrelationIdError: it is to another one
        """
        key = expected.meta.key
        assert key is not None
        message, _ = read_answer(self.receive_frame(), key, version, self._correlation_id)
        assert isinstance(message, expected)
        return message

    def fileno(self) -> int:
        """Return the descriptor of the socket."""
        return self._frames.socket.fileno()

    def close(self) -> None:
        """Hang up; harmless twice."""
        self._frames.close()


@contextmanager
def _ends() -> Iterator[None]:
    try:
        yield
    except (ConnectionEndedError, ConnectionResetError, BrokenPipeError, FrameSizeError) as error:
        raise ConnectionEnded(str(error)) from None
