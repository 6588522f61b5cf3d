"""Requests as bytes, whole or cut, and connections that are opened and ended in every way a socket allows."""

from __future__ import annotations

import contextlib
import random
import socket
import struct

from blumfeld.client.frames import request_frame
from blumfeld.wire.messages.api_versions import ApiVersionsRequest
from blumfeld.wire.schema import Message
from campaigns.bad_input.target import good_batch
from campaigns.raw_requests import FETCH_VERSION, PRODUCE_VERSION, fetch_request, produce_request

CLIENT_ID = "fault"
CONNECT_TIMEOUT_S = 10.0
API_VERSIONS_VERSION = 2
_SIZE = struct.Struct(">i")
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def framed(message: Message, version: int, correlation_id: int = 1) -> bytes:
    """Size, header, body."""
    return request_frame(message, version, correlation_id, CLIENT_ID)


def produce(topic: str, value: bytes, acks: int = -1, correlation_id: int = 1) -> bytes:
    """One record for partition 0."""
    return framed(produce_request(topic, good_batch(value), acks=acks), PRODUCE_VERSION, correlation_id)


def fetch(
    topic: str, offset: int, max_bytes: int, max_wait_ms: int = 0, min_bytes: int = 1, correlation_id: int = 1
) -> bytes:
    """Partition 0 from an offset."""
    request = fetch_request(topic, offset, 0, max_bytes, max_wait_ms, min_bytes)
    return framed(request, FETCH_VERSION, correlation_id)


def api_versions(correlation_id: int = 1) -> bytes:
    """The cheapest request that has an answer."""
    return framed(ApiVersionsRequest(), API_VERSIONS_VERSION, correlation_id)


def spoiled(data: bytes, chance: random.Random) -> bytes:
    """Return the bytes with a few faults."""
    made = bytearray(data)
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(len(made)) if made else 0
        kind = chance.randrange(4)
        if kind == 0 and made:
            made[at] = chance.randrange(256)
        elif kind == 1:
            del made[at:]
        elif kind == 2:
            made[at:at] = chance.randbytes(chance.randrange(1, 40))
        else:
            del made[at : at + chance.randrange(1, 40)]
    return bytes(made)


def announced(size_bytes: int) -> bytes:
    """A size field alone."""
    return _SIZE.pack(size_bytes)


def connect(address: str, source: str = "127.0.0.1", timeout_s: float = CONNECT_TIMEOUT_S) -> socket.socket:
    """A connected socket; ``source`` is any address of 127/8, so that ports don't run out."""
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout_s, (source, 0))


def source_of(nth: int) -> str:
    """One of 200 loopback addresses."""
    return f"127.0.1.{1 + nth % 200}"


def reset(sock: socket.socket) -> None:
    """Close with RST instead of FIN."""
    with contextlib.suppress(OSError):  # the broker may have closed it, and reset it, before
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    sock.close()


def receive(sock: socket.socket, size: int) -> bytes:
    """Exactly so many bytes.

    :raises ConnectionError: the broker closed before that
    """
    parts = bytearray()
    while len(parts) < size:
        part = sock.recv(min(size - len(parts), 1 << 20))
        if not part:
            raise ConnectionError(f"closed after {len(parts)} of {size} bytes")
        parts += part
    return bytes(parts)


def receive_frame(sock: socket.socket) -> bytes:
    """The next answer; it begins with its correlation id.

    :raises ConnectionError: the broker closed before its end
    """
    (size,) = _SIZE.unpack(receive(sock, 4))
    return receive(sock, size)


def correlation_id_of(answer: bytes) -> int:
    """Return the correlation id of a whole answer."""
    correlation_id: int = _SIZE.unpack_from(answer)[0]
    return correlation_id


def is_served(sock: socket.socket) -> bool:
    """Whether a request is answered, in the socket's own time-out."""
    try:
        sock.sendall(api_versions(7))
        return correlation_id_of(receive_frame(sock)) == 7
    except OSError:  # ConnectionError and TimeoutError are two
        return False
