"""What is kept of batches that recovery walked over: enough for producers, transactions and epochs, and not more."""

from __future__ import annotations

import pytest

from blumfeld.broker.replicas.state import recovered_batches
from blumfeld.broker.replicas.state.recovered_batches import RecoveredBatches
from blumfeld.log.producers.end_marker import end_marker_of
from blumfeld.wire.batches.record_batch import HEADER_BYTES, RecordBatch
from tests.log.batches import batch_bytes, data_batch, marker


def plain(base_offset: int, leader_epoch: int = 0) -> RecordBatch:
    return RecordBatch(memoryview(batch_bytes(base_offset, leader_epoch=leader_epoch)))


def kept(*batches: RecordBatch, end_offset: int = 100) -> list[RecordBatch]:
    found = RecoveredBatches()
    for batch in batches:
        found.add(batch)
    assert found.complete
    return list(found.batches(end_offset))


def test_of_batches_without_a_producer_only_the_first_of_an_epoch_is_kept() -> None:
    found = kept(plain(0), plain(1), plain(2, leader_epoch=3), plain(3, leader_epoch=3))
    assert [(batch.base_offset, batch.partition_leader_epoch) for batch in found] == [(0, 0), (2, 3)]


def test_of_a_producers_batch_the_header_is_kept() -> None:
    """A copy: recovery's buffer is valid during the call only."""
    data = bytearray(data_batch(4, 7, 1, 9, 3).data)
    found = RecoveredBatches()
    found.add(RecordBatch(memoryview(data)))
    data[:] = bytes(len(data))
    (batch,) = found.batches(100)
    assert (batch.base_offset, batch.producer_id, batch.base_sequence, batch.last_offset) == (4, 7, 9, 6)
    assert len(batch.data) == HEADER_BYTES


def test_a_marker_is_kept_whole() -> None:
    (batch,) = kept(marker(5, 7, 1, committed=False, coordinator_epoch=3))
    found = end_marker_of(batch)
    assert found is not None
    assert (found.committed, found.coordinator_epoch) == (False, 3)


def test_what_recovery_cut_off_is_left_out() -> None:
    assert [b.base_offset for b in kept(data_batch(0, 7, 1, 0), data_batch(1, 7, 1, 1), end_offset=1)] == [0]


def test_it_says_when_it_is_not_all(monkeypatch: pytest.MonkeyPatch) -> None:
    found = RecoveredBatches()
    assert not found.complete, "recovery walked over nothing"
    monkeypatch.setattr(recovered_batches, "KEPT_MAX", 2)
    for offset in (3, 4, 5):
        found.add(data_batch(offset, 7, 1, offset))
    assert not found.complete
    assert found.start_offset == 3
