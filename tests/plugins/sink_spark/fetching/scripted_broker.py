"""A broker with scripted answers, for behaviour that no real broker shows on demand."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from blumfeld.wire.api import request_class
from blumfeld.wire.api_table import ApiKey
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.headers import request_header, response_header, response_is_flexible
from blumfeld.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from blumfeld.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from blumfeld.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TOPIC = "scripted"

Answer = PartitionData | bytes | None
"""The answer to a fetch: a partition's data, or bytes in place of the frame. None closes the connection."""


class ScriptedBroker:
    """Leads partition 0 of ``TOPIC``. ``fetched`` has the offset, last epoch and size of each fetch."""

    def __init__(self, script: Callable[[int], Answer], versions: dict[int, tuple[int, int]]) -> None:
        self.fetched: list[tuple[int, int, int]] = []
        self._script = script
        self._versions = versions
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.bootstrap = f"127.0.0.1:{self.port}"

    def serve(self) -> None:
        """One connection after the other, until it is closed."""
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            with (
                client,
                client.makefile("rb") as stream,
                suppress(OSError),
            ):  # the reader may let go at any time
                while (size := stream.read(4)) and self._answered(
                    client, stream.read(int.from_bytes(size, "big"))
                ):
                    pass

    def close(self) -> None:
        """Ends ``serve``."""
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _answered(self, client: socket.socket, frame: bytes) -> bool:
        header = request_header(memoryview(frame))
        request: Any = decode(request_class(header.api_key), frame, header.api_version, header.body_offset)
        body: Any = self._metadata()
        if header.api_key == ApiKey.API_VERSIONS:
            body = ApiVersionsResponse(
                api_keys=[
                    ApiVersion(api_key=k, min_version=a, max_version=b)
                    for k, (a, b) in self._versions.items()
                ]
            )
        elif header.api_key == ApiKey.FETCH:
            asked = request.topics[0].partitions[0]
            self.fetched.append((asked.fetch_offset, asked.last_fetched_epoch, asked.partition_max_bytes))
            answer = self._script(len(self.fetched) - 1)
            if not isinstance(answer, PartitionData):
                client.sendall(answer or b"")
                return False
            body = FetchResponse(responses=[FetchableTopicResponse(topic=TOPIC, partitions=[answer])])
        flexible = response_is_flexible(header.api_key, header.api_version)
        data = response_header(header.correlation_id, flexible) + encode(body, header.api_version)
        client.sendall(len(data).to_bytes(4, "big") + data)
        return True

    def _metadata(self) -> MetadataResponse:
        partition = MetadataResponsePartition(partition_index=0, leader_id=7)
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=7, host="127.0.0.1", port=self.port)],
            topics=[MetadataResponseTopic(name=TOPIC, partitions=[partition])],
        )


MODERN = {ApiKey.FETCH: (4, 17), ApiKey.METADATA: (0, 13), ApiKey.LIST_OFFSETS: (1, 10)}


@contextmanager
def scripted(
    script: Callable[[int], Answer], versions: dict[Any, tuple[int, int]] = MODERN
) -> Iterator[ScriptedBroker]:
    """:param script: the answer to the nth fetch"""
    broker = ScriptedBroker(script, versions)
    thread = threading.Thread(target=broker.serve)
    thread.start()
    try:
        yield broker
    finally:
        broker.close()
        thread.join(10)
