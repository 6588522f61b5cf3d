"""Requests in lock-step: every connection sends, then every answer is read. So a server's turns are the same each time.

That is no load that anybody has, and no time is taken: it is for counting what a server does for one request
(:mod:`blumfeld.bench.instructions`). The requests are those of the load generator beside the floors: Produce v7,
acks=1, one record, topic ``t``, partition 0.
"""

from __future__ import annotations

import os
import socket
import struct
import time

from blumfeld.wire.batch_builder import build_batch
from blumfeld.wire.records import Record

TOPIC = b"t"
PARTITIONS = 4
RECORD_BYTES = 100
TIMEOUT_S = 300.0
"""For one answer: under valgrind a server is fifty times slower, and the machine may be busy."""

_SIZE = struct.Struct(">i")
_HEADER = struct.Struct(">hhih")
_CLIENT_ID = b"test"
_ERROR_AT = struct.Struct(">h")
_PRODUCE_ERROR_AT = 4 + 4 + 2 + len(TOPIC) + 4 + 4
"""Of a Produce v7 answer with one topic and partition, behind its size."""
_TOPIC_EXISTS = 36


def framed(key: int, version: int, body: bytes) -> bytes:
    """A request with its size and its (not flexible) header."""
    head = _HEADER.pack(key, version, 1, len(_CLIENT_ID)) + _CLIENT_ID
    return _SIZE.pack(len(head) + len(body)) + head + body


def produce_request(size_bytes: int = RECORD_BYTES) -> bytes:
    """Produce v7 of one record without a key, its value of ``size_bytes``."""
    record = Record(offset=0, timestamp=time.time_ns() // 1_000_000, key=None, value=os.urandom(size_bytes))
    batch = build_batch([record])
    start = struct.pack(">hhii", -1, 1, 1000, 1) + struct.pack(">h", len(TOPIC)) + TOPIC
    return framed(0, 7, start + struct.pack(">iii", 1, 0, len(batch)) + batch)


class Lockstep:
    """Connections to one server, each with at most one request in flight.

    :raises OSError: the server closed a connection, or did not answer in :data:`TIMEOUT_S`
    """

    def __init__(self, port: int, connections: int) -> None:
        self.sockets = [connect(port) for _ in range(connections)]

    def produce(self, count: int, request: bytes) -> None:
        """``count`` requests over all connections, a multiple of their number.

        :raises RuntimeError: an answer with an error code
        """
        for _ in range(count // len(self.sockets)):
            for sock in self.sockets:
                sock.sendall(request)
            for sock in self.sockets:
                code = produce_error(receive(sock))
                if code:
                    raise RuntimeError(f"produce was answered with error {code}")

    def close(self) -> None:
        """Close them all."""
        for sock in self.sockets:
            sock.close()


def connect(port: int) -> socket.socket:
    """To a server on loopback."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def receive(sock: socket.socket) -> bytes:
    """One answer, without its size."""
    data = sock.recv(65536)
    while len(data) < 4 or len(data) < 4 + _SIZE.unpack_from(data)[0]:
        more = sock.recv(1 << 20)
        if not more:
            raise ConnectionResetError("the server closed the connection")
        data += more
    return data[4:]


def produce_error(answer: bytes) -> int:
    """The error code of a Produce v7 answer with one partition."""
    code: int = _ERROR_AT.unpack_from(answer, _PRODUCE_ERROR_AT)[0]
    return code


def make_topic(port: int) -> None:
    """CreateTopics v2, then records until they are taken: a leader needs a moment.

    :raises RuntimeError: it can't be made
    """
    sock = connect(port)
    body = struct.pack(">ih", 1, len(TOPIC)) + TOPIC + struct.pack(">ihiiib", PARTITIONS, 1, 0, 0, 10_000, 0)
    sock.sendall(framed(19, 2, body))
    answer = receive(sock)
    (code,) = _ERROR_AT.unpack_from(answer, 4 + 4 + 4 + 2 + len(TOPIC))
    if code not in (0, _TOPIC_EXISTS):
        raise RuntimeError(f"the topic was refused with error {code}")
    request = produce_request()
    for _ in range(100):
        sock.sendall(request)
        if not produce_error(receive(sock)):
            break
        time.sleep(0.1)
    sock.close()
