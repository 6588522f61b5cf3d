"""A fetch of two partitions from a real broker, over each transport and storage: no batch comes in pieces."""

from __future__ import annotations

from typing import Any

import pytest

from blumfeld.testing import EmbeddedBroker
from blumfeld.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from blumfeld.wire.messages.fetch import FetchResponse
from blumfeld.wire.messages.produce import ProduceResponse
from blumfeld.wire.primitives import records_size
from blumfeld_net_uring.io_uring.probe import probe
from campaigns.raw_connection import RawConnection
from tests.broker.batches import batch, fetch, produce

TRANSPORTS: list[Any] = [
    pytest.param("net_asyncio"),
    pytest.param("net_uring", marks=pytest.mark.skipif(not probe().available, reason=str(probe().why_not))),
]


@pytest.mark.parametrize("storage", ["storage_memory", "storage_local"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_is_left_of_a_fetch_brings_no_piece_of_a_batch(transport: str, storage: str) -> None:
    """The Java client ends at a piece ("Failed to make progress"), kafka-python and aiokafka raise
    RecordTooLargeError, and librdkafka takes an OFFSET_OUT_OF_RANGE for the end of the log.
    """
    with (
        EmbeddedBroker(storage=storage, manifest={"network": {"plugin": transport}}) as broker,
        RawConnection(broker.bootstrap_servers) as connection,
    ):
        ask = connection.ask
        topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
        ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7, CreateTopicsResponse)
        for value_bytes in (5_000, 50_000):  # copied, and sent from the file
            data = batch(bytes(value_bytes))
            size = len(data)
            for partition in (0, 1):
                made = ask(produce(data, partition=partition, acks=-1), 9, ProduceResponse)
                offset = made.responses[0].partition_responses[0].base_offset
            for left in (1, 16, 17, size - 1, size):
                answer = ask(fetch(offset, partitions=(0, 1), max_bytes=size + left), 12, FetchResponse)
                outcomes = [
                    (p.error_code, records_size(p.records or b"")) for p in answer.responses[0].partitions
                ]
                assert outcomes == [(0, size), (0, size if left == size else 0)], left
