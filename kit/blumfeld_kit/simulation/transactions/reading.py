"""Reads a partition as a consumer of either isolation level, from a leader or a follower."""

from __future__ import annotations

from typing import NamedTuple

from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.batches.control_records import ControlType, control_type_of
from blumfeld.wire.batches.record_batch import split_batches
from blumfeld.wire.batches.records import records
from blumfeld.wire.errors import ErrorCode, is_retriable
from blumfeld.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from blumfeld_kit.simulation.clients.client import ClientConnection
from blumfeld_kit.simulation.clients.oracle import ViolationError
from blumfeld_kit.simulation.cluster.routes import Routes
from blumfeld_kit.simulation.transactions.ledger import TransactionLedger

FETCH_VERSION = 12
BYTES_MAX = 1 << 16


class Read(NamedTuple):
    """The result of one Fetch."""

    values: list[tuple[int, bytes]]
    position: int
    """Where the next one begins."""
    data: PartitionData


async def read(
    routes: Routes,
    ledger: TransactionLedger,
    partition: TopicPartition,
    position: int,
    *,
    committed: bool,
    follower: bool = False,
    wait_ms: int = 300,
) -> Read | None:
    """Fetch once. Return ``None`` if there is nothing to say: the leader has changed, or the follower lags.

    :raises OSError: the broker is lost
    :raises ViolationError: the answer can't be right
    """
    connection = await (routes.replica(partition) if follower else routes.leader(partition))
    excuses = ledger.partitions[partition].excuses
    data = await _fetch(routes, connection, partition, position, committed, wait_ms)
    if ledger.partitions[partition].excuses != excuses:
        return None  # what it shows may be of either history
    code = ErrorCode(data.error_code)
    if code is not ErrorCode.NONE:
        if follower:
            return None
        if not is_retriable(code):
            raise ViolationError(f"{partition}@{position}: Fetch was refused with {code.name}")
        await routes.lost(partition)
        return None
    if committed and data.last_stable_offset > data.high_watermark:
        raise ViolationError(
            f"{partition}: the last stable offset {data.last_stable_offset} is above the high watermark "
            f"{data.high_watermark}"
        )
    end = data.last_stable_offset if committed else data.high_watermark
    found = Read([], position, data) if not data.records else _values(data, position, committed)
    if found.position > max(end, position):
        raise ViolationError(f"{partition}: records up to {found.position} are shown, and {end} is the end")
    for offset, value in found.values:
        ledger.saw(partition, offset, value)
    return found


async def _fetch(
    routes: Routes,
    connection: ClientConnection,
    partition: TopicPartition,
    position: int,
    committed: bool,
    wait_ms: int,
) -> PartitionData:
    asked = FetchPartition(
        partition=partition.partition,
        fetch_offset=position,
        current_leader_epoch=routes.leader_epoch(partition),
        partition_max_bytes=BYTES_MAX,
    )
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=BYTES_MAX,
        isolation_level=int(committed),
        topics=[FetchTopic(topic=partition.topic, partitions=[asked])],
    )
    answer = await connection.ask(request, FETCH_VERSION, FetchResponse)
    return answer.responses[0].partitions[0]


def _values(data: PartitionData, position: int, committed: bool) -> Read:
    """Return the records from ``position`` on, without those of aborted transactions if ``committed``: a client leaves
    them out, by the ranges in the answer."""
    begin = position
    aborted = sorted(data.aborted_transactions or (), key=lambda one: one.first_offset, reverse=True)
    leaving_out: set[int] = set()
    values = []
    assert isinstance(data.records, memoryview)
    for batch in split_batches(data.records, allow_partial=True):
        batch.verify_crc()
        while aborted and aborted[-1].first_offset <= batch.last_offset:
            leaving_out.add(aborted.pop().producer_id)
        if batch.is_control:
            [marker] = records(batch)
            if control_type_of(marker.key) is ControlType.ABORT:
                leaving_out.discard(batch.producer_id)
        elif not (committed and batch.is_transactional and batch.producer_id in leaving_out):
            values += [(one.offset, bytes(one.value or b"")) for one in records(batch) if one.offset >= begin]
        position = max(position, batch.next_offset)
    return Read(values, position, data)
