"""A data directory to recover: filled over the wire, and handed out in copies that share the bytes."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import attrs

from blumfeld.client.errors import error_name
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from blumfeld_bench.drivers.contract import DriverError
from blumfeld_bench.drivers.wire_client import WireClient
from campaigns.raw_connection import RawConnection

TOPIC = "recovery"
PRODUCE_VERSION = 8
RECORDS_PER_BATCH = 16
REQUEST_BYTES = 1 << 20
"""Approximate size of one Produce request."""
PRODUCER_ID = 10_000
"""One producer id for all batches: a request may hold batches of one producer only."""
LEADERS_TIMEOUT_S = 600.0
POLL_S = 0.02


@attrs.frozen
class Shape:
    """Content to be written."""

    size_bytes: int
    partitions: int
    batch_bytes: int
    idempotent: bool = False
    """Give batches producer ids and sequence numbers, as Kafka's own producer does."""

    @property
    def batches(self) -> int:
        """Number of batches in each partition."""
        return max(self.size_bytes // self.partitions // self.batch_bytes, 1)

    @property
    def end_offset(self) -> int:
        """End offset of each partition."""
        return self.batches * RECORDS_PER_BATCH


def fill(port: int, shape: Shape) -> None:
    """Create the topic and write it, one batch for each partition in turn, acks=1.

    :raises DriverError: the server refused a request
    """
    with WireClient("127.0.0.1", port, LEADERS_TIMEOUT_S) as client:
        client.create_topic(TOPIC, shape.partitions)
        client.wait_for_leaders(TOPIC)
    at_once = max(REQUEST_BYTES // shape.batch_bytes, 1)
    began_ms = time.time_ns() // 1_000_000
    with RawConnection(f"127.0.0.1:{port}", LEADERS_TIMEOUT_S) as connection:
        for number in range(shape.batches):
            for start in range(0, shape.partitions, at_once):
                chosen = range(start, min(start + at_once, shape.partitions))
                _produce(connection, shape, number, chosen, began_ms + number)


def _produce(
    connection: RawConnection, shape: Shape, number: int, partitions: Sequence[int], time_ms: int
) -> None:
    batch = bytes(_batch(shape, number, time_ms))
    data = [PartitionProduceData(index=index, records=batch) for index in partitions]
    request = ProduceRequest(
        acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)]
    )
    answer = connection.ask(request, PRODUCE_VERSION, ProduceResponse)
    for partition in answer.responses[0].partition_responses:
        if partition.error_code:
            raise DriverError(f"{TOPIC}-{partition.index}: {error_name(partition.error_code)}")


def _batch(shape: Shape, number: int, time_ms: int) -> bytearray:
    value = bytes(max((shape.batch_bytes - 61) // RECORDS_PER_BATCH - 12, 1))
    records = [Record(timestamp=time_ms, key=None, value=value) for _ in range(RECORDS_PER_BATCH)]
    if not shape.idempotent:
        return build_batch(records)
    return build_batch(
        records,
        producer_id=PRODUCER_ID,
        producer_epoch=0,
        base_sequence=number * RECORDS_PER_BATCH,
    )


def await_all(port: int, shape: Shape) -> None:
    """Return when every partition has a leader that answers with the end offset that was written.

    :raises DriverError: an end offset differs, or it took longer than ten minutes
    """
    deadline = time.monotonic() + LEADERS_TIMEOUT_S
    while True:
        try:
            with WireClient("127.0.0.1", port, LEADERS_TIMEOUT_S) as client:
                leaders = client.leaders(TOPIC)
                ends = client.latest_offsets(TOPIC, leaders)
            if len(ends) == shape.partitions:
                break
        except DriverError as error:
            if time.monotonic() > deadline:
                raise DriverError(f"not all partitions are back: {error}") from error
        time.sleep(POLL_S)
    wrong = [index for index, end in enumerate(ends) if end != shape.end_offset]
    if wrong:
        raise DriverError(
            f"{TOPIC}-{wrong[0]} ends at {ends[wrong[0]]}, not {shape.end_offset} ({len(wrong)} such)"
        )


def copy_tree(source: Path, target: Path) -> None:
    """Copy a data directory. The topic's ``.log`` files become hard links, so that ten gigabytes need not be
    written for each round. That is safe: a start after a crash reads them, and changes nothing in sound files.
    """

    def copy(old: str, new: str) -> None:
        path = Path(old)
        if path.suffix == ".log" and path.parent.name.startswith(f"{TOPIC}-"):
            os.link(old, new)
        else:
            shutil.copy2(old, new)

    shutil.copytree(source, target, copy_function=copy)


def log_bytes(folder: Path) -> dict[str, int]:
    """Return the size of the topic's ``.log`` files below ``folder``, by path; no start may change them."""
    found = sorted(folder.rglob(f"{TOPIC}-*/*.log"))
    return {str(path.relative_to(folder)): path.stat().st_size for path in found}
