"""Requests in lock-step: every connection sends, then every answer is read. So a server's turns are the same each time.

This is no realistic load and takes no times. It serves to count a server's work for one request
(:mod:`campaigns.bench.counting.instructions`). The produce requests equal those of the load generator beside the bare
servers: Produce v7, acks=1, one record, topic ``t``, partition 0. Fetches are version 12, in a session, of the same
partition.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from typing import Protocol

from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

TOPIC = b"t"
PARTITIONS = 4
RECORD_BYTES = 100
CATCH_UP_RECORD_BYTES = 10_000
CATCH_UP_RECORDS = 2_000
FETCH_BYTES_MAX = 1 << 20
"""Bytes of a partition in one answer: a consumer's default."""
WAIT_MS = 30_000
TIMEOUT_S = 300.0
"""Wait for one answer: under valgrind a server is fifty times slower, and the machine may be busy."""

_SIZE = struct.Struct(">i")
_HEADER = struct.Struct(">hhih")
_CLIENT_ID = b"test"
_ERROR_AND_OFFSET = struct.Struct(">hq")
_PRODUCE_ERROR_AT = 4 + 4 + 2 + len(TOPIC) + 4 + 4
"""Place of the error in a Produce v7 answer with one topic and partition, after its size."""
WARM_UP_REQUESTS = 512
_TOPIC_EXISTS = 36
_FETCH_VERSION = 12
_FETCH_BODY_AT = 4 + 1
"""Place of the body in an answer with a flexible header, after its size."""


class Load(Protocol):
    """Connections to one server, each with at most one request in flight.

    :raises OSError: the server closed a connection, or did not answer in :data:`TIMEOUT_S`
    """

    warm_up_requests: int
    """Most requests that are sent before the count begins."""

    def run(self, count: int) -> None:
        """Send ``count`` requests over all connections; ``count`` is a multiple of their number.

        :raises RuntimeError: an answer has an error code
        """
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class Produce:
    """A :class:`Load` of producers."""

    warm_up_requests = WARM_UP_REQUESTS

    def __init__(self, port: int, connections: int) -> None:
        self._sockets = [connect(port) for _ in range(connections)]
        self._request = produce_request()

    def run(self, count: int) -> None:
        """See :meth:`Load.run`."""
        for _ in range(count // len(self._sockets)):
            for sock in self._sockets:
                sock.sendall(self._request)
            for sock in self._sockets:
                produced_offset(receive(sock))

    def close(self) -> None:
        """Close the connections."""
        for sock in self._sockets:
            sock.close()


class Reader:
    """One consumer of partition 0, in a fetch session."""

    def __init__(self, port: int, offset: int, min_bytes: int) -> None:
        self.offset = offset
        self._min_bytes = min_bytes
        self._session_id = self._epoch = 0
        self._socket = connect(port)

    def send(self) -> None:
        """Request the records from the present offset on."""
        partition = FetchPartition(partition=0, fetch_offset=self.offset, partition_max_bytes=FETCH_BYTES_MAX)
        request = FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=self._min_bytes,
            max_bytes=50 << 20,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=[FetchTopic(topic=TOPIC.decode(), partitions=[partition])],
        )
        self._socket.sendall(framed(1, _FETCH_VERSION, b"\0" + encode(request, _FETCH_VERSION)))

    def receive(self) -> int:
        """Take the answer and move past its last batch; return the bytes of records."""
        answer = decode(FetchResponse, receive(self._socket), _FETCH_VERSION, _FETCH_BODY_AT)
        if answer.error_code or answer.responses[0].partitions[0].error_code:
            raise RuntimeError(f"fetch was answered with an error: {answer}")
        self._session_id, self._epoch = answer.session_id, self._epoch + 1
        records = answer.responses[0].partitions[0].records
        assert isinstance(records, (bytes, memoryview))
        at = 0
        while len(records) - at >= 61:
            base, length = struct.unpack_from(">qi", records, at)
            at += 12 + length
            if at <= len(records):
                self.offset = base + struct.unpack_from(">i", records, at - length - 12 + 23)[0] + 1
        return len(records)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


class Tail:
    """A :class:`Load` of consumers at the end of a log: they wait, one record is produced, and all receive it.

    A request is one fetch, with its share of the one produce request.
    """

    warm_up_requests = WARM_UP_REQUESTS

    def __init__(self, port: int, connections: int) -> None:
        self._producer = connect(port)
        self._request = produce_request()
        end = self._produce() + 1
        self._readers = [Reader(port, end, min_bytes=1) for _ in range(connections)]

    def _produce(self) -> int:
        self._producer.sendall(self._request)
        return produced_offset(receive(self._producer))

    def run(self, count: int) -> None:
        """See :meth:`Load.run`."""
        for _ in range(count // len(self._readers)):
            for reader in self._readers:
                reader.send()
            self._produce()
            for reader in self._readers:
                if not reader.receive():
                    raise RuntimeError("a fetch was answered without records")

    def close(self) -> None:
        """Close the connections."""
        self._producer.close()
        for reader in self._readers:
            reader.close()


class CatchUp:
    """A :class:`Load` of consumers that read 20 MB from the beginning, again and again, as fast as they get it."""

    warm_up_requests = WARM_UP_REQUESTS

    def __init__(self, port: int, connections: int) -> None:
        producer, request = connect(port), produce_request(CATCH_UP_RECORD_BYTES)
        offsets = []
        for _ in range(CATCH_UP_RECORDS):
            producer.sendall(request)
            offsets.append(produced_offset(receive(producer)))
        producer.close()
        self._first, self._end = offsets[0], offsets[-1] + 1
        self._readers = [Reader(port, self._first, min_bytes=1) for _ in range(connections)]

    def run(self, count: int) -> None:
        """See :meth:`Load.run`."""
        for _ in range(count // len(self._readers)):
            for reader in self._readers:
                reader.send()
            for reader in self._readers:
                reader.receive()
                if reader.offset >= self._end:
                    reader.offset = self._first

    def close(self) -> None:
        """Close the connections."""
        for reader in self._readers:
            reader.close()


def framed(key: int, version: int, body: bytes) -> bytes:
    """Return a request with its size and header; the header's tags, if the version has them, are part of ``body``."""
    head = _HEADER.pack(key, version, 1, len(_CLIENT_ID)) + _CLIENT_ID
    return _SIZE.pack(len(head) + len(body)) + head + body


def produce_request(size_bytes: int = RECORD_BYTES) -> bytes:
    """Return a Produce v7 of one record without a key, with a value of ``size_bytes``."""
    record = Record(offset=0, timestamp=time.time_ns() // 1_000_000, key=None, value=os.urandom(size_bytes))
    batch = build_batch([record])
    start = struct.pack(">hhii", -1, 1, 1000, 1) + struct.pack(">h", len(TOPIC)) + TOPIC
    return framed(0, 7, start + struct.pack(">iii", 1, 0, len(batch)) + batch)


def produced_offset(answer: bytes) -> int:
    """Return the base offset in a Produce v7 answer with one partition.

    :raises RuntimeError: the answer has an error code
    """
    code, offset = _ERROR_AND_OFFSET.unpack_from(answer, _PRODUCE_ERROR_AT)
    if code:
        raise RuntimeError(f"produce was answered with error {code}")
    return int(offset)


def connect(port: int) -> socket.socket:
    """Connect to a server on loopback."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def receive(sock: socket.socket) -> bytes:
    """Return one answer, without its size."""
    data = bytearray(sock.recv(65536))
    while len(data) < 4 or len(data) < 4 + _SIZE.unpack_from(data)[0]:
        more = sock.recv(1 << 20)
        if not more:
            raise ConnectionResetError("the server closed the connection")
        data += more
    return bytes(data[4:])


def make_topic(port: int) -> None:
    """Create the topic by CreateTopics v2, then send records until they are taken: a leader needs a moment.

    :raises RuntimeError: the topic can't be created
    """
    sock = connect(port)
    body = struct.pack(">ih", 1, len(TOPIC)) + TOPIC + struct.pack(">ihiiib", PARTITIONS, 1, 0, 0, 10_000, 0)
    sock.sendall(framed(19, 2, body))
    (code,) = struct.unpack_from(">h", receive(sock), 4 + 4 + 4 + 2 + len(TOPIC))
    if code not in (0, _TOPIC_EXISTS):
        raise RuntimeError(f"the topic was refused with error {code}")
    request = produce_request()
    for _ in range(100):
        sock.sendall(request)
        try:
            produced_offset(receive(sock))
            break
        except RuntimeError:
            time.sleep(0.1)
    sock.close()
