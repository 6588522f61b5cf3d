"""Requests in lock-step: every connection sends, then every answer is read. So a server's turns are the same each time.

This is no realistic load and takes no times. It serves to count a server's work for one request
(:mod:`campaigns.bench.counting.instructions`). The produce requests equal those of the load generator beside the bare
servers: Produce v7, acks=1, one record, topic ``t``, partition 0. Fetches are version 12, in a session, of the same
partition.
"""

from __future__ import annotations

import os
import time
from typing import Protocol, TypeVar

from blumfeld.client.blocking_connection import FrameSocket
from blumfeld.client.connection import read_answer
from blumfeld.client.frames import request_frame
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.record_batch import split_batches
from blumfeld.wire.batches.records import Record
from blumfeld.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from blumfeld.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from blumfeld.wire.schema import Message
from blumfeld_bench.drivers.wire_client import WireClient

R = TypeVar("R", bound=Message)

TOPIC = "t"
PARTITIONS = 4
RECORD_BYTES = 100
CATCH_UP_RECORD_BYTES = 10_000
CATCH_UP_RECORDS = 2_000
FETCH_BYTES_MAX = 1 << 20
"""Bytes of a partition in one answer: a consumer's default."""
WAIT_MS = 30_000
TIMEOUT_S = 300.0
"""Wait for one answer: under valgrind a server is fifty times slower, and the machine may be busy."""
WARM_UP_REQUESTS = 512
PRODUCE_VERSION, FETCH_VERSION = 7, 12
CLIENT_ID = "test"
CORRELATION_ID = 1


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
                sock.send(self._request)
            for sock in self._sockets:
                produced_offset(sock)

    def close(self) -> None:
        """Close the connections."""
        for sock in self._sockets:
            sock.close()


class Reader:
    """One consumer of partition 0, in a fetch session."""

    def __init__(self, port: int, offset: int) -> None:
        self.offset = offset
        self._session_id = self._epoch = 0
        self._socket = connect(port)

    def send(self) -> None:
        """Request the records from the present offset on."""
        partition = FetchPartition(partition=0, fetch_offset=self.offset, partition_max_bytes=FETCH_BYTES_MAX)
        request = FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=50 << 20,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=[FetchTopic(topic=TOPIC, partitions=[partition])],
        )
        self._socket.send(request_frame(request, FETCH_VERSION, CORRELATION_ID, CLIENT_ID))

    def receive(self) -> None:
        """Take the answer and move past its last whole batch.

        :raises RuntimeError: the answer has an error code, or no records
        """
        answer = received(self._socket, FetchResponse, FETCH_VERSION)
        partition = answer.responses[0].partitions[0] if answer.responses else None
        if answer.error_code or partition is None or partition.error_code or not partition.records:
            raise RuntimeError(f"fetch was answered with an error or without records: {answer}")
        self._session_id, self._epoch = answer.session_id, self._epoch + 1
        assert isinstance(partition.records, memoryview)
        for batch in split_batches(partition.records, allow_partial=True):
            self.offset = batch.next_offset

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
        self._readers = [Reader(port, end) for _ in range(connections)]

    def _produce(self) -> int:
        self._producer.send(self._request)
        return produced_offset(self._producer)

    def run(self, count: int) -> None:
        """See :meth:`Load.run`."""
        for _ in range(count // len(self._readers)):
            for reader in self._readers:
                reader.send()
            self._produce()
            for reader in self._readers:
                reader.receive()

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
            producer.send(request)
            offsets.append(produced_offset(producer))
        producer.close()
        self._first, self._end = offsets[0], offsets[-1] + 1
        self._readers = [Reader(port, self._first) for _ in range(connections)]

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


def produce_request(size_bytes: int = RECORD_BYTES) -> bytes:
    """Return a Produce of one record without a key, with a value of ``size_bytes``."""
    record = Record(offset=0, timestamp=time.time_ns() // 1_000_000, key=None, value=os.urandom(size_bytes))
    data = PartitionProduceData(index=0, records=bytes(build_batch([record])))
    topics = [TopicProduceData(name=TOPIC, partition_data=[data])]
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics)
    return request_frame(request, PRODUCE_VERSION, CORRELATION_ID, CLIENT_ID)


def produced_offset(sock: FrameSocket) -> int:
    """Return the base offset in the answer to a Produce.

    :raises RuntimeError: the answer has an error code
    """
    (partition,) = received(sock, ProduceResponse, PRODUCE_VERSION).responses[0].partition_responses
    if partition.error_code:
        raise RuntimeError(f"produce was answered with error {partition.error_code}")
    return partition.base_offset


def received(sock: FrameSocket, expected: type[R], version: int) -> R:
    """Return the next answer."""
    assert expected.meta.key is not None
    message, _ = read_answer(sock.receive(), expected.meta.key, version, CORRELATION_ID)
    assert isinstance(message, expected)
    return message


def connect(port: int) -> FrameSocket:
    """Connect to a server on loopback."""
    return FrameSocket("127.0.0.1", port, TIMEOUT_S)


def make_topic(port: int, topic: str = TOPIC, partitions: int = PARTITIONS) -> None:
    """Create a topic, and wait until its leaders answer."""
    with WireClient("127.0.0.1", port, TIMEOUT_S) as client:
        client.create_topic(topic, partitions)
        client.wait_for_leaders(topic)
