"""A blocking connection to one broker: requests out, frames in."""

from __future__ import annotations

import socket
from typing import Any, TypeVar

from blumfeld.wire.api import response_class
from blumfeld.wire.api_table import ApiKey
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.headers import put_request_header, response_body_offset
from blumfeld.wire.messages.api_versions import ApiVersionsRequest
from blumfeld.wire.primitives import DecodeError
from blumfeld.wire.schema import Message

FRAME_BYTES_MAX = 100_000_000
"""The largest answer that is taken: librdkafka's ``receive.message.max.bytes``."""
SPOKEN: dict[int, tuple[int, int]] = {
    ApiKey.FETCH: (12, 12),
    ApiKey.LIST_OFFSETS: (6, 8),
    ApiKey.METADATA: (9, 12),
}
"""The versions that we write and read: brokers since Kafka 2.7 have them."""

M = TypeVar("M", bound=Message)


class TooOldError(Exception):
    """The broker doesn't speak what is needed, or holds records of formats 0 or 1: librdkafka can read there."""


class Connection:
    """Open from its making on. What goes wrong with the broker or the way to it is an ``OSError`` or a
    :class:`~blumfeld.wire.primitives.DecodeError`, and the connection is of no use then.
    """

    def __init__(self, host: str, port: int, client_id: str, timeout_s: float) -> None:
        """:param timeout_s: how long connecting, or one step of sending and receiving, may take
        :raises TooOldError: the broker doesn't speak the versions that are needed
        """
        self._client_id = client_id
        self._sent = self._received = 0
        self._buffer = bytearray(1 << 16)
        self._socket = socket.create_connection((host, port), timeout_s)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._versions = {int(ApiKey.API_VERSIONS): 0}
            self._versions.update(self._agreed())
        except BaseException:
            self._socket.close()
            raise

    def _agreed(self) -> dict[int, int]:
        answer: Any = self.ask(ApiVersionsRequest())
        if answer.error_code:
            raise TooOldError("the broker doesn't say what it speaks")
        found = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        agreed = {}
        for key, (least, most) in SPOKEN.items():
            lowest, highest = found.get(key, (0, -1))
            agreed[key] = min(most, highest)
            if agreed[key] < max(least, lowest):
                raise TooOldError(f"the broker speaks versions {lowest} to {highest} of API {key}")
        return agreed

    def ask(self, request: Message) -> Message:
        """One request, and its answer."""
        return self.receive(self.send(request))

    def send(self, request: Message) -> int:
        """Writes a request, whose answer is to be received in turn. Says its API's key."""
        key = request.meta.key
        assert key is not None
        version = self._versions[key]
        self._sent += 1
        frame = put_request_header(key, version, self._sent, self._client_id) + encode(request, version)
        self._socket.sendall(len(frame).to_bytes(4, "big") + frame)
        return key

    def receive(self, key: int) -> Message:
        """The answer to the oldest request that has none, of this API.

        Its ``records`` are views that hold until the next call.
        """
        size = int.from_bytes(self._read(4), "big", signed=True)
        if not 4 <= size <= FRAME_BYTES_MAX:
            raise DecodeError(f"an answer of {size} bytes, where {FRAME_BYTES_MAX} are allowed")
        frame = self._read(size)
        self._received += 1
        correlation_id, at = response_body_offset(frame, key, self._versions[key])
        if correlation_id != self._received:
            raise DecodeError(f"the answer {correlation_id}, where {self._received} was due")
        return decode(response_class(key), frame, self._versions[key], at)

    def close(self) -> None:
        """Lets go of it. May be called twice."""
        self._socket.close()

    def _read(self, size: int) -> memoryview:
        """So many bytes, in a buffer that is used again: what is new to a process has to be mapped first."""
        if len(self._buffer) < size:
            self._buffer = bytearray(size + size // 4)
        view = memoryview(self._buffer)[:size]
        at = 0
        while at < size:
            got = self._socket.recv_into(view[at:], 0, socket.MSG_WAITALL)
            if not got:
                raise ConnectionResetError("the broker let go of the connection")
            at += got
        return view
