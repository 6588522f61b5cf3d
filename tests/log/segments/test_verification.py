"""What is said of a segment's files: each fault once, with what mends it, and nothing of a sound one."""

from __future__ import annotations

import pytest

from blumfeld.log.leader_epochs import LeaderEpochCache
from blumfeld.log.producers.aborted_transactions import encode_aborted
from blumfeld.log.producers.snapshot import ProducerEntry, WrittenBatch, encode_snapshot
from blumfeld.log.segments.index import OffsetIndex, SegmentIndexer, TimeIndex
from blumfeld.log.segments.verification import (
    Finding,
    Mending,
    SegmentBytes,
    SegmentSummary,
    first_epochs,
    verify_epochs,
    verify_log,
    verify_segment,
    verify_snapshot,
)
from blumfeld.spi.compaction import AbortedTransaction
from blumfeld.wire.batches.builder import build_batch, build_empty_batch
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import Record
from tests.log.batches import batch_bytes, marker

BASE = 10


def log_bytes(count: int = 12, *, epoch_every: int = 100) -> bytes:
    """Batches of two records, 10 ms apart."""
    return b"".join(
        batch_bytes(BASE + 2 * n, 2, timestamp_ms=1000 + 10 * n, leader_epoch=n // epoch_every)
        for n in range(count)
    )


def indexed(log: bytes) -> tuple[bytes, bytes]:
    """The indexes that a writer would have made, with an entry for each batch but the first."""
    indexer = SegmentIndexer(OffsetIndex(BASE), TimeIndex(BASE), 0)
    at = 0
    while at < len(log):
        batch = RecordBatch(memoryview(log), at)
        indexer.add(batch.last_offset, at, batch.size_bytes, batch.max_timestamp)
        at += batch.size_bytes
    indexer.seal()
    return indexer.offsets.encode(), indexer.times.encode()


def findings(
    log: bytes, offsets: bytes | None = None, times: bytes | None = None, aborted: bytes | None = None
) -> list[Finding]:
    made = indexed(log_bytes()) if offsets is None or times is None else (b"", b"")
    segment = SegmentBytes(
        base_offset=BASE,
        log=memoryview(log),
        offset_index=made[0] if offsets is None else offsets,
        time_index=made[1] if times is None else times,
        transaction_index=aborted,
    )
    return verify_segment(segment).findings


def test_a_sound_segment_gives_no_finding_and_the_right_counts() -> None:
    log = log_bytes(epoch_every=5)
    offsets, times = indexed(log)
    segment = SegmentBytes(base_offset=BASE, log=memoryview(log), offset_index=offsets, time_index=times)
    seen = verify_segment(segment)
    assert seen.findings == []
    assert (seen.batches, seen.records, seen.next_offset, seen.max_timestamp_ms) == (12, 24, BASE + 24, 1110)
    assert seen.first_epochs == [(0, BASE), (1, BASE + 10), (2, BASE + 20)]


def test_damaged_bytes_are_to_be_cut_and_say_where() -> None:
    log = bytearray(log_bytes())
    log[200] ^= 1
    (finding, *_) = findings(bytes(log))
    assert finding.mending is Mending.CUT
    assert finding.damage is not None
    assert finding.damage.position <= 200 < finding.damage.position + finding.damage.size_bytes
    assert "CRC" in finding.problem


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data[:-3], "not a whole number"),
        (lambda data: b"\xff" * 16 + data[16:], "offset index"),
        (lambda data: data[8:16] + data[:8] + data[16:], "after"),
        (lambda data: data[:7] + bytes([data[7] + 1]) + data[8:], "no batch starts there"),
        (lambda data: data[:3] + bytes([data[3] + 1]) + data[4:], "it ends with"),
    ],
    ids=["cut", "garbage", "order", "position", "offset"],
)
def test_an_offset_index_that_is_not_of_this_log_is_to_be_rebuilt(change, said) -> None:  # type: ignore[no-untyped-def]
    offsets, times = indexed(log_bytes())
    (finding,) = findings(log_bytes(), change(offsets), times)
    assert finding.mending is Mending.REBUILD
    assert said in finding.problem


def test_a_time_index_that_would_hide_records_is_to_be_rebuilt() -> None:
    """An entry says that nothing up to its offset is newer than it."""
    offsets, times = indexed(log_bytes())
    low = bytearray(times)
    low[12 + 7] -= 5
    (finding,) = findings(log_bytes(), offsets, bytes(low))
    assert (finding.file[-9:], finding.mending) == ("timeindex", Mending.REBUILD)
    assert "stands there" in finding.problem


def test_the_header_of_a_marker_that_the_cleaner_emptied_is_sound() -> None:
    assert findings(bytes(build_empty_batch(marker(BASE, 7, 1, committed=False))), b"", b"") == []


def test_zeros_behind_the_last_entry_are_no_fault() -> None:
    """Kafka preallocates the indexes of the active segment, and kill -9 leaves them so."""
    offsets, times = indexed(log_bytes())
    notes = findings(log_bytes(), offsets + bytes(8000), times + bytes(12_000))
    assert [note.mending for note in notes] == [Mending.NOTHING, Mending.NOTHING]


def test_missing_indexes_are_to_be_rebuilt_unless_there_is_nothing_to_index() -> None:
    segment = SegmentBytes(base_offset=BASE, log=memoryview(log_bytes()), offset_index=None, time_index=None)
    assert [(f.problem, f.mending) for f in verify_segment(segment).findings] == [
        ("missing", Mending.REBUILD)
    ] * 2
    empty = SegmentBytes(base_offset=BASE, log=memoryview(b""), offset_index=None, time_index=None)
    assert verify_segment(empty).findings == []


def test_an_aborted_transaction_needs_its_marker() -> None:
    log = log_bytes(3) + bytes(marker(BASE + 6, 7, 0, committed=False).data)
    entry = AbortedTransaction(
        producer_id=7, first_offset=BASE, last_offset=BASE + 6, last_stable_offset=BASE
    )
    offsets, times = indexed(log)
    assert findings(log, offsets, times, encode_aborted([entry])) == []
    other = AbortedTransaction(
        producer_id=8, first_offset=BASE, last_offset=BASE + 6, last_stable_offset=BASE
    )
    (finding,) = findings(log, offsets, times, encode_aborted([other]))
    assert "no abort marker of producer 8" in finding.problem
    (finding,) = findings(log, offsets, times, b"x" * 35)
    assert "34-byte entries" in finding.problem


def test_records_that_are_no_records_are_found_when_looked_for() -> None:
    """The CRC is right, so whoever wrote it wrote nonsense."""
    good = build_batch([Record(key=b"k", value=b"v")], base_offset=BASE)
    log = bytes(good) + batch_bytes(BASE + 1, 3, payload=b"\xff" * 20)
    offsets, times = indexed(log)
    segment = SegmentBytes(base_offset=BASE, log=memoryview(log), offset_index=offsets, time_index=times)
    assert verify_segment(segment).findings == []
    (finding,) = verify_segment(segment, deep=True).findings
    assert finding.mending is Mending.NONE
    assert f"offset {BASE + 1}" in finding.problem


def summary(base: int, end: int, epochs: list[tuple[int, int]] | None = None) -> SegmentSummary:
    return SegmentSummary(
        base_offset=base, batches=1, next_offset=end, first_epochs=epochs or [], findings=[]
    )


def test_a_hole_between_segments_is_told_unless_the_log_is_compacted() -> None:
    log = [summary(0, 10), summary(15, 20)]
    (finding,) = verify_log(log, compacts=False)
    assert finding.problem == "offsets 10 to 14 before it are missing"
    assert list(verify_log(log, compacts=True)) == []
    (finding,) = verify_log([summary(0, 10), summary(8, 20)], compacts=True)
    assert finding.mending is Mending.NONE


def test_epochs_are_held_against_the_batches() -> None:
    log = [summary(0, 10, [(0, 0), (2, 5)]), summary(10, 20, [(2, 10), (3, 12)])]
    assert first_epochs(log) == [(0, 0), (2, 5), (3, 12)]
    cache = LeaderEpochCache()
    for epoch, offset in first_epochs(log):
        cache.assign(epoch, offset)
    assert list(verify_epochs(cache.encode(), "epochs", log)) == []
    wrong = LeaderEpochCache()
    wrong.assign(0, 0)
    wrong.assign(2, 7)
    (finding,) = verify_epochs(wrong.encode(), "epochs", log)
    assert finding.problem == "the batch at offset 5 is of epoch 2, the file says 0"
    assert [f.mending for f in verify_epochs(b"junk", "epochs", log)] == [Mending.REBUILD]
    assert [f.problem for f in verify_epochs(None, "epochs", log)] == ["missing"]
    assert list(verify_epochs(None, "epochs", [])) == []


def test_a_snapshot_must_be_readable_and_of_this_log() -> None:
    entry = ProducerEntry(producer_id=1, epoch=0, batches=(WrittenBatch(4, 9, 4, 1000),))
    data = encode_snapshot([entry])
    assert list(verify_snapshot(data, "s", 10, 10)) == []
    for bad, offset in ((data[:-1], 10), (data, 11), (data, 9)):
        notes = list(verify_snapshot(bad, "s", offset, 10))
        assert [note.mending for note in notes] == [Mending.REMOVE]
