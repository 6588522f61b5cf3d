"""Frames: an int32 size, then that many bytes. Written for requests, cut out of a stream for answers."""

from __future__ import annotations

import struct

from blumfeld.client.errors import FrameSizeError
from blumfeld.wire.codec import encode
from blumfeld.wire.headers import put_request_header
from blumfeld.wire.schema import Message

SIZE_BYTES = 4
FRAME_BYTES_MIN = 4
"""The smallest answer is a correlation id alone."""
FRAME_BYTES_MAX = 100_000_000
"""The largest answer that is taken: librdkafka's ``receive.message.max.bytes``."""

_SIZE = struct.Struct(">i")
_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
"""How an alert and a handshake of TLS begin: an answer of half a gigabyte would, too."""


def request_frame(request: Message, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Return a whole request: size, header, body.

    :raises EncodeError: the request has no form in this version
    """
    header = put_request_header(api_key_of(request), version, correlation_id, client_id)
    payload = header + encode(request, version)
    return _SIZE.pack(len(payload)) + payload


def api_key_of(message: Message) -> int:
    """The key of the API that a request or an answer belongs to."""
    key = type(message).meta.key
    assert key is not None, f"{type(message).__name__} is no request"
    return key


def frame_size(data: bytes | bytearray | memoryview, frame_bytes_max: int = FRAME_BYTES_MAX) -> int:
    """Return the size that the first four bytes of ``data`` announce.

    :raises FrameSizeError: no answer has that size, or it is above ``frame_bytes_max``
    """
    size: int = _SIZE.unpack_from(data)[0]
    if not FRAME_BYTES_MIN <= size <= frame_bytes_max:
        if bytes(data[:2]) in _TLS_RECORDS:
            raise FrameSizeError("the server speaks TLS here: security.protocol must be SSL or SASL_SSL")
        raise FrameSizeError(
            f"the server announces a frame of {size} bytes; {FRAME_BYTES_MIN} to {frame_bytes_max} are allowed"
        )
    return size


class FrameCutter:
    """Cuts a stream into frames. Each frame gets memory of its own, so views into it stay valid."""

    __slots__ = ("_frame_bytes_max", "_rest")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._rest = bytearray()
        self._frame_bytes_max = frame_bytes_max

    def add(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes of the stream."""
        self._rest += data

    def next(self) -> bytes | None:
        """Return the next whole frame without its size, or None until more bytes come.

        :raises FrameSizeError: see :func:`frame_size`. It is raised as soon as the size is there, before the server
            can make this side keep the frame
        """
        rest = self._rest
        if len(rest) < SIZE_BYTES:
            return None
        end = SIZE_BYTES + frame_size(rest, self._frame_bytes_max)
        if len(rest) < end:
            return None
        with memoryview(rest) as view:
            frame = bytes(view[SIZE_BYTES:end])
        del rest[:end]
        return frame

    @property
    def begun_bytes(self) -> int:
        """Bytes of a frame that is not whole yet."""
        return len(self._rest)
