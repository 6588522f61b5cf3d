"""A broker that answers Metadata and ListOffsets with scripted error codes, as a restarting broker does."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from blumfeld.wire.api_table import ApiKey
from blumfeld.wire.codec import encode
from blumfeld.wire.headers import request_header, response_header, response_is_flexible
from blumfeld.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
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

TOPIC = "listed"
END = 5
"""The offset in its answer after all errors."""
LOST = -1000
"""Stands in place of an error code: the broker closes the connection without an answer."""


class ListingBroker(socketserver.ThreadingTCPServer):
    """The leader of partition 0 of ``TOPIC``. It answers with each code of a list in turn, then with success."""

    daemon_threads = True

    def __init__(self, offsets: Sequence[int], topics: Sequence[int]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.offsets, self.topics = list(offsets), list(topics)
        self.asked = 0
        """Number of ListOffsets requests so far."""

    @property
    def address(self) -> str:
        """Address for ``bootstrap.servers``."""
        return f"127.0.0.1:{self.server_address[1]}"


class _Handler(socketserver.StreamRequestHandler):
    server: ListingBroker

    def handle(self) -> None:
        while size := self.rfile.read(4):
            frame = self.rfile.read(int.from_bytes(size, "big"))
            header = request_header(memoryview(frame))
            body = self._body(
                header.api_key
            )  # requests' bodies aren't read: each test knows the requests of its client
            if body is None:
                return
            flexible = response_is_flexible(header.api_key, header.api_version)
            data = response_header(header.correlation_id, flexible) + encode(body, header.api_version)
            self.wfile.write(len(data).to_bytes(4, "big") + data)

    def _body(self, key: int) -> Any:
        if key == ApiKey.API_VERSIONS:
            spoken = {ApiKey.API_VERSIONS: (0, 3), ApiKey.METADATA: (0, 9), ApiKey.LIST_OFFSETS: (1, 5)}
            keys = [ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in spoken.items()]
            return ApiVersionsResponse(api_keys=keys)
        if key == ApiKey.METADATA:
            error = self.server.topics.pop(0) if self.server.topics else 0
            partition = MetadataResponsePartition(partition_index=0, leader_id=7, leader_epoch=1)
            return MetadataResponse(
                brokers=[
                    MetadataResponseBroker(node_id=7, host="127.0.0.1", port=self.server.server_address[1])
                ],
                controller_id=7,
                topics=[
                    MetadataResponseTopic(
                        name=TOPIC, error_code=error, partitions=[] if error else [partition]
                    )
                ],
            )
        self.server.asked += 1
        error = self.server.offsets.pop(0) if self.server.offsets else 0
        if error == LOST:
            return None
        found = ListOffsetsPartitionResponse(
            partition_index=0, error_code=error, offset=-1 if error else END, leader_epoch=1
        )
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[found])])


@contextmanager
def listing(*, offsets: Sequence[int] = (), topics: Sequence[int] = ()) -> Iterator[ListingBroker]:
    """:param offsets: the error codes that ListOffsets gets in turn before it succeeds
    :param topics: the same for the topic in Metadata
    """
    with ListingBroker(offsets, topics) as broker:
        thread = threading.Thread(target=broker.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield broker
        finally:
            broker.shutdown()
            thread.join(10)
