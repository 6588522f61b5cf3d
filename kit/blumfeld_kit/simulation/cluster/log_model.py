"""The transactions of a log, worked out from its batches alone, and compared with what a replica keeps.

This is a second implementation of ``ProducerState`` and of the aborted ranges, as simple as it can be.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from blumfeld.broker.replicas.partition import Partition
from blumfeld.spi.tiering import local_log_start_offset
from blumfeld.wire.batches.control_records import ControlType, control_type_of
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import records
from blumfeld_kit.simulation.clients.oracle import ViolationError
from blumfeld_kit.simulation.cluster.replica_checks import unseen
from blumfeld_kit.simulation.machine.host import Machine

NOTHING = -1


class LoggedProducer(msgspec.Struct):
    """One producer, as the log has it."""

    epoch: int
    last_offset: int = NOTHING
    """Last offset of its data in this epoch."""
    first_offset: int = NOTHING
    """Offset at which its open transaction begins."""


class LoggedTransactions(msgspec.Struct):
    """All transactions of a log."""

    end_offset: int
    producers: dict[int, LoggedProducer] = msgspec.field(default_factory=dict)
    aborted: list[tuple[int, int, int]] = msgspec.field(default_factory=list)
    """(producer id, first offset, offset of the marker), in the order of the markers."""
    ended: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """(first offset, offset of the marker) of every transaction that ended."""

    def last_stable_offset(self, high_watermark: int, *, markers_count: bool = False) -> int:
        """Return the offset up to which read_committed readers may read: a marker counts once it is committed.

        :param markers_count: a marker counts at once
        """
        begins = [producer.first_offset for producer in self.producers.values() if producer.first_offset >= 0]
        if not markers_count:
            begins += [first for first, marker in self.ended if marker >= high_watermark]
        return min([*begins, high_watermark])


def transactions_of(batches: Iterable[RecordBatch], end_offset: int) -> LoggedTransactions:
    """Return what the batches below ``end_offset`` say."""
    transactions = LoggedTransactions(end_offset)
    for batch in batches:
        if batch.next_offset > end_offset:
            break
        if batch.producer_id < 0:
            continue
        known = transactions.producers.get(batch.producer_id)
        if known is None or known.epoch != batch.producer_epoch:
            first = NOTHING if known is None else known.first_offset
            known = transactions.producers[batch.producer_id] = LoggedProducer(
                batch.producer_epoch, first_offset=first
            )
        if batch.is_control:
            _end(transactions, known, batch)
        else:
            known.last_offset = batch.last_offset
            if batch.is_transactional and known.first_offset < 0:
                known.first_offset = batch.base_offset
    return transactions


def _end(transactions: LoggedTransactions, producer: LoggedProducer, batch: RecordBatch) -> None:
    [marker] = records(batch)
    if producer.first_offset >= 0:
        transactions.ended.append((producer.first_offset, batch.last_offset))
        if control_type_of(marker.key) is ControlType.ABORT:
            transactions.aborted.append((batch.producer_id, producer.first_offset, batch.last_offset))
    producer.first_offset = NOTHING


def check_log_state(machine: Machine, partition: Partition) -> None:
    """Check that what a replica keeps of producers and transactions is what its log says.

    :raises ViolationError: it differs
    """
    log, state = partition.log, partition.state
    if state.replaying or partition.closed is not None:
        return
    if (
        log.placed_end_offset != log.written_end_offset
        or state.producers.end_offset != log.written_end_offset
    ):
        return  # in the middle of a turn
    end_offset, start = log.written_end_offset, local_log_start_offset(log)
    with unseen(machine):
        model = transactions_of(log.batches(start) if start < end_offset else (), end_offset)
    who = f"{partition.partition}: {machine.address}"
    entries = state.producers.producers()
    for entry in entries:
        logged = model.producers.get(entry.producer_id)
        if logged is None and 0 <= entry.last_offset < start:
            continue  # its records were deleted
        kept = (entry.epoch, entry.last_offset, entry.txn_first_offset)
        if logged is None or (logged.epoch, logged.last_offset, logged.first_offset) != kept:
            raise ViolationError(
                f"{who} keeps another state of a producer than its log has: (epoch, last offset, begin of the "
                f"transaction) of producer {entry.producer_id} are {kept}, and in the log {logged}"
            )
    if len(entries) < len(model.producers):
        raise ViolationError(f"{who} has forgotten producers: its log has those of {list(model.producers)}")
    aborted = [(span.producer_id, span.first_offset, span.last_offset) for span in state.aborted.entries]
    if aborted != model.aborted:
        raise ViolationError(
            f"{who} keeps other aborted ranges than its log has: {aborted}, not {model.aborted}"
        )
    high_watermark, stable = partition.readable_ends()
    allowed = {model.last_stable_offset(high_watermark)}
    if machine.incarnations > 1:
        # A snapshot of producers doesn't say which markers are not committed yet, as in Kafka.
        allowed.add(model.last_stable_offset(high_watermark, markers_count=True))
    if stable not in allowed:
        raise ViolationError(
            f"{who} has another last stable offset than its log says: {stable}, not "
            f"{model.last_stable_offset(high_watermark)}, with the high watermark {high_watermark}"
        )
