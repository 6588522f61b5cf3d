"""A broker with scripted answers, for behaviour that no real broker shows on demand."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from blumfeld.wire.api import request_class
from blumfeld.wire.api_table import ApiKey
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.headers import request_header, response_header, response_is_flexible
from blumfeld.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from blumfeld.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from blumfeld.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from blumfeld.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TOPIC = "scripted"
END = 5
"""The offset that ListOffsets answers with after all errors."""
LOST = -1000
"""Stands in place of an error code: the broker closes the connection without an answer."""
Answer = PartitionData | bytes | None
"""The answer to a fetch: a partition's data, or bytes in place of the frame. None closes the connection."""
Versions = Mapping[Any, tuple[int, int]]
MODERN: Versions = {ApiKey.FETCH: (4, 17), ApiKey.METADATA: (0, 13), ApiKey.LIST_OFFSETS: (1, 10)}
LISTING: Versions = {ApiKey.API_VERSIONS: (0, 3), ApiKey.METADATA: (0, 9), ApiKey.LIST_OFFSETS: (1, 5)}


class ScriptedBroker(socketserver.ThreadingTCPServer):
    """Leads partition 0 of ``TOPIC``. ListOffsets and Metadata answer with each code of a list in turn, then well."""

    daemon_threads = True

    def __init__(
        self,
        versions: Versions,
        fetch: Callable[[int], Answer],
        offsets: Sequence[int],
        topics: Sequence[int],
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.versions, self.fetch = versions, fetch
        self.offsets, self.topics = list(offsets), list(topics)
        self.listed = 0
        """Number of ListOffsets requests so far."""
        self.fetched: list[tuple[int, int, int]] = []
        """Offset, last epoch and size of each fetch so far."""

    @property
    def address(self) -> str:
        """Address for ``bootstrap.servers``."""
        return f"127.0.0.1:{self.server_address[1]}"

    def answer(self, key: int, request: Any) -> Any:
        """Returns a response, or bytes that are sent before the connection is closed."""
        if key == ApiKey.API_VERSIONS:
            spoken = [
                ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in self.versions.items()
            ]
            return ApiVersionsResponse(api_keys=spoken)
        if key == ApiKey.METADATA:
            return self._metadata()
        if key == ApiKey.FETCH:
            wanted = request.topics[0].partitions[0]
            self.fetched.append((wanted.fetch_offset, wanted.last_fetched_epoch, wanted.partition_max_bytes))
            data = self.fetch(len(self.fetched) - 1)
            if not isinstance(data, PartitionData):
                return data or b""
            return FetchResponse(responses=[FetchableTopicResponse(topic=TOPIC, partitions=[data])])
        self.listed += 1
        error = self.offsets.pop(0) if self.offsets else 0
        if error == LOST:
            return b""
        partition_answer = ListOffsetsPartitionResponse(
            partition_index=0, error_code=error, offset=-1 if error else END, leader_epoch=1
        )
        return ListOffsetsResponse(
            topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[partition_answer])]
        )

    def _metadata(self) -> MetadataResponse:
        error = self.topics.pop(0) if self.topics else 0
        partition = MetadataResponsePartition(partition_index=0, leader_id=7, leader_epoch=1)
        parts = [] if error else [partition]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=7, host="127.0.0.1", port=self.server_address[1])],
            controller_id=7,
            topics=[MetadataResponseTopic(name=TOPIC, error_code=error, partitions=parts)],
        )


class _Connection(socketserver.StreamRequestHandler):
    server: ScriptedBroker

    def handle(self) -> None:
        while size := self.rfile.read(4):
            frame = self.rfile.read(int.from_bytes(size, "big"))
            header = request_header(memoryview(frame))
            request = None
            if header.api_key == ApiKey.FETCH:
                kind = request_class(header.api_key)
                request = decode(kind, frame, header.api_version, header.body_offset)
            body = self.server.answer(header.api_key, request)
            if isinstance(body, bytes):
                self.wfile.write(body)
                return
            flexible = response_is_flexible(header.api_key, header.api_version)
            data = response_header(header.correlation_id, flexible) + encode(body, header.api_version)
            self.wfile.write(len(data).to_bytes(4, "big") + data)


@contextmanager
def scripted(
    fetch: Callable[[int], Answer] = lambda nth: None,
    versions: Versions = MODERN,
    *,
    offsets: Sequence[int] = (),
    topics: Sequence[int] = (),
) -> Iterator[ScriptedBroker]:
    """Serves a broker for the time of the context.

    :param fetch: the answer to the nth fetch
    :param offsets: the error codes that ListOffsets gets in turn before it succeeds
    :param topics: the same for the topic in Metadata
    """
    with ScriptedBroker(versions, fetch, offsets, topics) as broker:
        thread = threading.Thread(target=broker.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield broker
        finally:
            broker.shutdown()
            thread.join(10)
