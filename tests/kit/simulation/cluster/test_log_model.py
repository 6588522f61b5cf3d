"""The transactions of a log that is written out by hand."""

from __future__ import annotations

from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.control_records import build_transaction_marker
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import Record
from blumfeld_kit.simulation.cluster.log_model import LoggedProducer, transactions_of


def data(base_offset: int, producer_id: int, epoch: int, records: int = 1) -> RecordBatch:
    values = [Record(value=b"x", timestamp=0)] * records
    built = build_batch(
        values,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        transactional=True,
    )
    return RecordBatch(memoryview(built))


def marker(base_offset: int, producer_id: int, epoch: int, *, commit: bool) -> RecordBatch:
    built = build_transaction_marker(
        commit=commit,
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=0,
        timestamp_ms=0,
        base_offset=base_offset,
    )
    return RecordBatch(memoryview(built))


LOG = [
    data(0, 1, 0, 2),
    data(2, 2, 5),
    marker(3, 1, 1, commit=False),
    data(4, 1, 1),
    marker(5, 2, 5, commit=True),
    data(6, 2, 5),
    data(7, 3, 0),
]


def test_open_ended_and_aborted_transactions_are_told_apart() -> None:
    transactions = transactions_of(LOG, 7)
    assert transactions.producers == {1: LoggedProducer(1, 4, 4), 2: LoggedProducer(5, 6, 6)}
    assert transactions.aborted == [(1, 0, 3)]
    assert transactions.ended == [(0, 3), (2, 5)]


def test_a_marker_counts_once_it_is_committed() -> None:
    transactions = transactions_of(LOG, 7)
    assert [transactions.last_stable_offset(end) for end in range(8)] == [0, 0, 0, 0, 2, 2, 4, 4]
    assert transactions.last_stable_offset(3, markers_count=True) == 3
