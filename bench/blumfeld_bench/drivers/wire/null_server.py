"""A server that does as little as possible: ``python -m blumfeld_bench.drivers.wire.null_server TOPIC PARTITIONS
BYTES``.

It prints its port and answers the requests of the wire driver. A Produce is answered at once, unread. A Fetch is
answered with the batches produced since that connection's last Fetch; if BYTES is not 0, at once with prepared
batches of records of that size, as many as were asked for. Nothing is checked, stored or given an offset. The rate
that a driver reaches against it is the driver's ceiling. The server ends when its stdin does.
"""

from __future__ import annotations

import contextlib
import select
import signal
import socket
import struct
import sys

from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.headers import request_header, response_header
from blumfeld.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from blumfeld.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from blumfeld.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from blumfeld.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from blumfeld.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from blumfeld_bench.drivers.connections import raise_descriptor_limit
from blumfeld_bench.drivers.frames import CLIENT_ID

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 1, 2, 3, 18
VERSIONS = {PRODUCE: (3, 7), FETCH: (4, 11), LIST_OFFSETS: (1, 4), METADATA: (0, 8), API_VERSIONS: (0, 0)}
BATCH_BYTES = 262_144
RECEIVE_BYTES = 1 << 20
PENDING_BYTES_MAX = 4 * 1024 * 1024
"""Largest size of the batches that one reader has not fetched yet; batches beyond that are dropped."""
END = 2**62

_HEAD = struct.Struct(">ihhi")  # length, key, version, correlation id
_I32 = struct.Struct(">i")


class Client:
    """One connection: received bytes, bytes still to be sent, and batches that it has not fetched yet."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.received = bytearray()
        self.unsent = bytearray()
        self.reads = False
        self.partitions: list[int] = []
        """Partitions that it fetches; answers put all batches into the first one."""
        self.prepared = b""
        self.parked: int | None = None
        """Correlation id of an open Fetch."""
        self.pending: list[bytes] = []
        self.pending_bytes = 0


class NullServer:
    """One thread, one epoll, for all connections."""

    def __init__(self, topic: str, partitions: int, record_bytes: int) -> None:
        self._topic, self._partitions, self._record_bytes = topic, partitions, record_bytes
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._epoll = select.epoll()
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)
        self._clients: dict[int, Client] = {}
        self.clients_max = 0
        """Largest number of connections at one time."""
        self._readers: list[Client] = []
        name = topic.encode()
        self._batch_at = _HEAD.size + 2 + len(CLIENT_ID) + 2 + 2 + 4 + 4 + 2 + len(name) + 4 + 4 + 4
        topics = [TopicProduceResponse(name=topic, partition_responses=[PartitionProduceResponse()])]
        self._produce_answer = encode(ProduceResponse(responses=topics), 7)
        self._produce_head = _I32.pack(4 + len(self._produce_answer))

    def serve(self, until: int) -> None:
        """Serve until this descriptor can be read."""
        self._epoll.register(until, select.EPOLLIN)
        while True:
            for descriptor, mask in self._epoll.poll():
                if descriptor == self._listener.fileno():
                    self._accept()
                elif descriptor == until:
                    return
                else:
                    client = self._clients.get(descriptor)
                    if client is None:
                        continue
                    if mask & select.EPOLLOUT:
                        self._send(client, b"")
                    if mask & ~select.EPOLLOUT:
                        self._receive(client)
            for reader in self._readers:
                if reader.parked is not None and reader.pending:
                    self._answer_fetch(reader)

    def close(self) -> None:
        """Close all connections."""
        for client in list(self._clients.values()):
            self._drop(client)
        self._listener.close()
        self._epoll.close()

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                sock, _ = self._listener.accept()
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._clients[sock.fileno()] = Client(sock)
                self.clients_max = max(self.clients_max, len(self._clients))
                self._epoll.register(sock.fileno(), select.EPOLLIN)

    def _drop(self, client: Client) -> None:
        self._epoll.unregister(client.sock.fileno())
        del self._clients[client.sock.fileno()]
        if client.reads:
            self._readers.remove(client)
        client.sock.close()

    def _receive(self, client: Client) -> None:
        try:
            data = client.sock.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(client)
            return
        if client.received:
            client.received += data
            if len(client.received) < _needed(client.received):
                return
            data = bytes(client.received)
            client.received.clear()
        at, end = 0, len(data)
        answers = []
        while end - at >= _HEAD.size:
            length, key, version, number = _HEAD.unpack_from(data, at)
            size = length + 4
            if end - at < size:
                break
            if key == PRODUCE:
                answers.append(self.produce_answer(number))
                if self._readers:
                    self._hand_on(data[at + self._batch_at : at + size])
            elif key == FETCH:
                self._fetch(client, data[at + 4 : at + size], number)
            else:
                answers.append(self._slow(data[at + 4 : at + size], key, version, number))
            at += size
        client.received += data[at:]
        if answers:
            self._send(client, b"".join(answers))

    def produce_answer(self, number: int) -> bytes:
        """Return the answer to one request; a server for tests overrides this."""
        return self._produce_head + _I32.pack(number) + self._produce_answer

    def _hand_on(self, batch: bytes) -> None:
        for reader in self._readers:
            if reader.pending_bytes < PENDING_BYTES_MAX:
                reader.pending.append(batch)
                reader.pending_bytes += len(batch)

    def _fetch(self, client: Client, request: bytes, number: int) -> None:
        if not client.reads:
            client.reads = True
            self._readers.append(client)
            fetch_request = decode(FetchRequest, request, 11, request_header(memoryview(request)).body_offset)
            client.partitions = [each.partition for each in fetch_request.topics[0].partitions]
            if self._record_bytes:
                client.prepared = self._prepared(fetch_request)
        if self._record_bytes:
            self._send(client, _I32.pack(4 + len(client.prepared)) + _I32.pack(number) + client.prepared)
        else:
            client.parked = number

    def _prepared(self, fetch_request: FetchRequest) -> bytes:
        """Return a full answer to this Fetch, except for its correlation id."""
        records = [Record(value=bytes(self._record_bytes))] * max(1, BATCH_BYTES // self._record_bytes)
        batch = bytes(build_batch(records))
        partitions = [
            PartitionData(
                partition_index=each.partition,
                high_watermark=END,
                records=batch * max(1, each.partition_max_bytes // len(batch)),
            )
            for each in fetch_request.topics[0].partitions
        ]
        answer = FetchResponse(responses=[FetchableTopicResponse(topic=self._topic, partitions=partitions)])
        return encode(answer, 11)

    def _answer_fetch(self, client: Client) -> None:
        assert client.parked is not None
        first, *others = (PartitionData(partition_index=index) for index in client.partitions)
        first.records = b"".join(client.pending)
        topic = FetchableTopicResponse(topic=self._topic, partitions=[first, *others])
        answer = FetchResponse(responses=[topic])
        body = encode(answer, 11)
        head = _I32.pack(4 + len(body)) + _I32.pack(client.parked)
        client.parked = None
        client.pending = []
        client.pending_bytes = 0
        self._send(client, head + body)

    def _slow(self, request: bytes, key: int, version: int, number: int) -> bytes:
        if key == API_VERSIONS:
            apis = [
                ApiVersion(api_key=api, min_version=low, max_version=high)
                for api, (low, high) in VERSIONS.items()
            ]
            error = (
                ErrorCode.UNSUPPORTED_VERSION if version else ErrorCode.NONE
            )  # always in version 0 (KIP-511)
            body = encode(ApiVersionsResponse(error_code=error, api_keys=apis), 0)
        elif key == METADATA:
            body = encode(self._metadata(), version)
        else:
            body = encode(self._offsets(request, version), version)
        head = response_header(number, False)
        return _I32.pack(len(head) + len(body)) + head + body

    def _metadata(self) -> MetadataResponse:
        partitions = [
            MetadataResponsePartition(partition_index=index, leader_id=1, replica_nodes=[1], isr_nodes=[1])
            for index in range(self._partitions)
        ]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)],
            topics=[MetadataResponseTopic(name=self._topic, partitions=partitions)],
        )

    def _offsets(self, request: bytes, version: int) -> ListOffsetsResponse:
        offsets_request = decode(
            ListOffsetsRequest, request, version, request_header(memoryview(request)).body_offset
        )
        partitions = [
            ListOffsetsPartitionResponse(partition_index=each.partition_index, offset=0)
            for each in offsets_request.topics[0].partitions
        ]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=self._topic, partitions=partitions)])

    def _send(self, client: Client, data: bytes) -> None:
        blocked = bool(client.unsent)
        if blocked:
            client.unsent += data
            data = bytes(client.unsent)
            client.unsent.clear()
        try:
            sent = client.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # the next receive reports the error too
        if sent < len(data):
            client.unsent += data[sent:]
        if bool(client.unsent) != blocked:
            wanted = select.EPOLLIN | (select.EPOLLOUT if client.unsent else 0)
            self._epoll.modify(client.sock.fileno(), wanted)


def _needed(data: bytearray) -> int:
    return _I32.unpack_from(data)[0] + 4 if len(data) >= 4 else 4


def main() -> None:
    """Serve one topic."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise_descriptor_limit()
    server = NullServer(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    print(server.port, flush=True)
    server.serve(sys.stdin.fileno())
    server.close()


if __name__ == "__main__":
    main()
