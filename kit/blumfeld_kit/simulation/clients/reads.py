"""Reads of a partition, as a consumer of either isolation level has them, from a leader or a follower."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.batches.control_records import ControlType, control_type_of
from blumfeld.wire.batches.record_batch import RecordBatch, split_batches
from blumfeld.wire.batches.records import records
from blumfeld.wire.errors import CorruptBatch, ErrorCode, is_retriable
from blumfeld.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from blumfeld_kit.simulation.clients.oracle import Oracle, PartitionOracle, ViolationError
from blumfeld_kit.simulation.clients.routes import RETRY_S, Routes

FETCH_VERSION = 12
BYTES_MAX = 1 << 16
Values = list[tuple[int, bytes | None]]
"""(offset, value) of records. The value of one in a batch that is known to be rotten is ``None``: a client would seek
over it."""


class Read(NamedTuple):
    """The result of one Fetch."""

    values: Values
    position: int
    """Offset at which the next one begins."""
    data: PartitionData

    def check_whole(self, name: object, position: int) -> None:
        """Check that no offset is left out from ``position`` on. :raises ViolationError: one is"""
        for expected, (offset, _) in enumerate(self.values, position):
            if offset != expected:
                raise ViolationError(f"{name}: {offset} follows {expected - 1}: a hole")


def readable(values: Values) -> list[tuple[int, bytes]]:
    """Return the records whose batch isn't rotten."""
    return [(offset, value) for offset, value in values if value is not None]


async def read(
    routes: Routes,
    oracle: Oracle,
    partition: TopicPartition,
    position: int,
    *,
    committed: bool = False,
    follower: bool = False,
    resets: bool = False,
    wait_ms: int = 300,
) -> Read | None:
    """Fetch once. Return ``None`` if there is nothing to say: the leader has changed, or the follower lags.

    :param resets: a position that is out of range begins anew where the log may begin
    :raises OSError: the broker is lost
    :raises ViolationError: the answer can't be right
    """
    it = oracle.partitions[partition]
    connection = await (routes.replica(partition) if follower else routes.leader(partition))
    excuses, epoch = it.excuses, routes.leader_epoch(partition)
    promised = it.is_promised(position) if resets else None
    fetch_partition = FetchPartition(
        partition=partition.partition,
        fetch_offset=position,
        current_leader_epoch=epoch,
        partition_max_bytes=BYTES_MAX,
    )
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=BYTES_MAX,
        isolation_level=int(committed),
        topics=[FetchTopic(topic=partition.topic, partitions=[fetch_partition])],
    )
    answer = await connection.ask(request, FETCH_VERSION, FetchResponse)
    data = answer.responses[0].partitions[0]
    if it.excuses != excuses or (follower and data.error_code):
        return None  # what it shows may be of either history
    reading = None
    if epoch >= it.floor_epoch:  # otherwise the leader is from before a loss that it hasn't heard of
        reading = judged(oracle, partition, position, data, committed=committed, promised=promised)
    if reading is None:
        await routes.lost(partition)
    return reading


def judged(
    oracle: Oracle,
    partition: TopicPartition,
    position: int,
    data: PartitionData,
    *,
    promised: bool | None,
    committed: bool = False,
) -> Read | None:
    """Check what a Fetch showed, and tell the oracle. Return ``None`` for an error that can be retried.

    :param promised: whether the position was there for sure when the request was sent. If it wasn't, the reader may
        begin anew; ``None``: it can't
    :raises ViolationError: the answer can't be right
    """
    it, code = oracle.partitions[partition], ErrorCode(data.error_code)
    if code is ErrorCode.OFFSET_OUT_OF_RANGE and promised is not None:
        if promised and it.is_promised(position):
            raise ViolationError(f"{partition}@{position}: out of range, and was acknowledged or read")
        return Read([], it.deleted, data)
    if code is not ErrorCode.NONE:
        if not is_retriable(code):
            raise ViolationError(f"{partition}@{position}: Fetch was refused with {code.name}")
        return None
    if committed and data.last_stable_offset > data.high_watermark:
        raise ViolationError(
            f"{partition}: the last stable offset {data.last_stable_offset} is above the high watermark "
            f"{data.high_watermark}"
        )
    end = data.last_stable_offset if committed else data.high_watermark
    reading = shown(it, data, position, committed=committed)
    if reading.position > max(end, position):
        raise ViolationError(f"{partition}: records up to {reading.position} are shown, and {end} is the end")
    for offset, value in readable(reading.values):
        oracle.read(partition, offset, value)
    return reading


def shown(it: PartitionOracle, data: PartitionData, position: int, *, committed: bool = False) -> Read:
    """Return the records from ``position`` on, without those of aborted transactions if ``committed``: a client leaves
    them out, by the ranges in the answer.

    :raises ViolationError: a batch is damaged in which no bit has flipped
    """
    if not data.records:
        return Read([], position, data)
    begin, values = position, Values()
    aborted = sorted(
        data.aborted_transactions or (), key=lambda transaction: transaction.first_offset, reverse=True
    )
    leaving_out: set[int] = set()
    assert isinstance(data.records, memoryview)
    for batch in split_batches(data.records, allow_partial=True):
        if _is_rotten(batch):
            last_offset = it.skip_rotten(batch.base_offset)
            values += [(offset, None) for offset in range(max(batch.base_offset, begin), last_offset + 1)]
            position = max(position, last_offset + 1)
            continue
        while aborted and aborted[-1].first_offset <= batch.last_offset:
            leaving_out.add(aborted.pop().producer_id)
        if batch.is_control:
            [marker] = records(batch)
            if control_type_of(marker.key) is ControlType.ABORT:
                leaving_out.discard(batch.producer_id)
        elif not (committed and batch.is_transactional and batch.producer_id in leaving_out):
            values += [
                (record.offset, bytes(record.value or b""))
                for record in records(batch)
                if record.offset >= begin
            ]
        position = max(position, batch.next_offset)
    return Read(values, position, data)


def _is_rotten(batch: RecordBatch) -> bool:
    try:
        batch.verify_crc()
    except CorruptBatch:
        return True
    return False


async def read_all(
    routes: Routes,
    oracle: Oracle,
    partition: TopicPartition,
    *,
    committed: bool = False,
    start_offset: int = 0,
) -> Values:
    """Return a whole partition from an offset on, as its leader shows it."""
    values, position = Values(), start_offset
    while True:
        try:
            reading = await read(routes, oracle, partition, position, committed=committed, wait_ms=0)
        except OSError:
            await asyncio.sleep(RETRY_S)
            continue
        if reading is None:
            continue
        if reading.position == position:
            end = reading.data.last_stable_offset if committed else reading.data.high_watermark
            if position >= end:
                return values
        values += reading.values
        position = reading.position
