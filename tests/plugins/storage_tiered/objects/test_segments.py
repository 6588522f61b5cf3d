"""What is read of a segment is what was written, or an error says what was found."""

from __future__ import annotations

import errno

import msgspec
import pytest

from blumfeld.spi.object_store import ObjectNotFoundError, StoreUnavailableError
from blumfeld_kit.fakes import Fault
from blumfeld_kit.fakes.object_store import Fate, SimulatedStore
from blumfeld_storage_tiered.catalog.segment import RemoteSegment, TopicIdPartition
from blumfeld_storage_tiered.objects.manifest import SegmentCorruptError
from blumfeld_storage_tiered.objects.names import MANIFEST, SegmentFile, object_key, partition_prefix
from blumfeld_storage_tiered.objects.segments import MANIFESTS_KEPT, FilePiece, SegmentProblem
from tests.everyday import for_each
from tests.plugins.storage_tiered.segments import CHUNK, LOG, PARTITION, LocalStore, Rig, collect, segment

LOG_KEY = object_key(segment(), "log")
MANIFEST_KEY = object_key(segment(), MANIFEST)


def uploaded(store_class: type[SimulatedStore] = SimulatedStore) -> tuple[Rig, RemoteSegment]:
    """A rig whose bucket has one segment."""
    rig = Rig(store_class=store_class)
    return rig, msgspec.structs.replace(segment(), custom_metadata=rig.upload(segment()))


@for_each(
    [
        (start, size)
        for start in (0, 1, CHUNK - 1, CHUNK, 5000, len(LOG) - 1, len(LOG), len(LOG) + 9)
        for size in (0, 1, CHUNK, 3 * CHUNK + 7, len(LOG), 10**9)
    ]
)
def test_a_range_is_read_as_it_was_written(start: int, size: int) -> None:
    rig, whole = uploaded()
    assert rig.runtime.run(rig.segments.read_range(whole, start, size)) == LOG[start : start + size]


def test_a_chunk_with_a_flipped_bit_is_refused_and_its_neighbours_are_read() -> None:
    rig, whole = uploaded()
    rig.bucket.rot(LOG_KEY, 2 * CHUNK + 1)
    read = rig.segments.read_range
    with pytest.raises(SegmentCorruptError, match=rf"another checksum of the chunk at byte {2 * CHUNK}; "):
        rig.runtime.run(read(whole, 0, len(LOG)))
    with pytest.raises(SegmentCorruptError, match="at byte"):
        rig.runtime.run(read(whole, 2 * CHUNK, CHUNK))
    assert rig.runtime.run(read(whole, 3 * CHUNK, CHUNK)) == LOG[3 * CHUNK : 4 * CHUNK]


def test_the_last_chunk_is_checked_though_it_is_short() -> None:
    rig, whole = uploaded()
    rig.bucket.rot(LOG_KEY, len(LOG) - 1)
    with pytest.raises(SegmentCorruptError, match="at byte 9216"):
        rig.runtime.run(rig.segments.read_range(whole, 9 * CHUNK, CHUNK))


def test_a_log_that_was_cut_is_refused() -> None:
    rig, whole = uploaded()
    rig.bucket.replace(LOG_KEY, LOG[:-1])
    with pytest.raises(SegmentCorruptError, match=r"\.log: found 9691 bytes; written was 9692 bytes"):
        rig.runtime.run(rig.segments.read_range(whole, 9000, 5000))


@pytest.mark.parametrize(("start", "size"), [(0, len(LOG)), (CHUNK, 2 * CHUNK), (9 * CHUNK, 10**9)])
def test_a_range_of_a_store_on_this_machine_stays_in_its_file(start: int, size: int) -> None:
    rig, whole = uploaded(LocalStore)
    rig.runtime.run(rig.segments.manifest(whole))
    before = rig.bucket.requests
    piece = rig.runtime.run(rig.segments.read_range(whole, start, size))
    assert isinstance(piece, FilePiece)
    assert rig.bucket.requests == before
    file = rig.runtime.files.open(piece.path)
    assert file.pread(piece.size_bytes, piece.start) == LOG[start : start + size]
    assert piece.file_bytes == len(LOG)


def test_a_file_of_this_machine_with_a_flipped_bit_or_another_length_is_refused() -> None:
    rig, whole = uploaded(LocalStore)
    read = rig.segments.read_range
    rig.bucket.rot(LOG_KEY, 2 * CHUNK + 1)
    with pytest.raises(SegmentCorruptError, match=rf"another checksum of the chunk at byte {2 * CHUNK}; "):
        rig.runtime.run(read(whole, CHUNK, 2 * CHUNK))
    rig.runtime.run(read(whole, 3 * CHUNK, 2 * CHUNK))
    rig.bucket.replace(LOG_KEY, LOG[:-1])
    with pytest.raises(SegmentCorruptError, match=r"\.log: found 9691 bytes; written was 9692 bytes"):
        rig.runtime.run(read(whole, 0, CHUNK))


def test_a_file_of_this_machine_that_is_gone_or_cannot_be_read_is_an_error_of_the_store() -> None:
    rig, whole = uploaded(LocalStore)
    read = rig.segments.read_range
    rig.runtime.run(read(whole, 0, CHUNK))
    rig.runtime.disk.inject(Fault(operation="pread", times=1, error_number=errno.EIO))
    with pytest.raises(StoreUnavailableError, match=r"\.log: .*/store/"):
        rig.runtime.run(read(whole, 0, CHUNK))
    rig.bucket.lose(LOG_KEY)
    rig.runtime.files.unlink(f"/store/{LOG_KEY}")
    with pytest.raises(ObjectNotFoundError, match="no file"):
        rig.runtime.run(read(whole, 0, CHUNK))


def test_a_small_file_is_read_whole_and_checked() -> None:
    rig, whole = uploaded()
    read = rig.segments.read_file
    assert rig.runtime.run(read(whole, SegmentFile.PRODUCER_SNAPSHOT)) == b"snapshot"
    for damaged in (b"snapshoT", b"snapshot2", b"snap", b""):
        rig.bucket.replace(object_key(whole, "snapshot"), damaged)
        with pytest.raises(SegmentCorruptError, match=r"\.snapshot: found"):
            rig.runtime.run(read(whole, SegmentFile.PRODUCER_SNAPSHOT))


def test_a_segment_without_aborted_transactions_has_no_transaction_index() -> None:
    rig = Rig()
    del rig.sources[SegmentFile.TRANSACTION_INDEX]
    rig.upload(segment())
    assert rig.runtime.run(rig.segments.read_file(segment(), SegmentFile.TRANSACTION_INDEX)) is None
    restored, _ = rig.runtime.run(
        rig.segments.manifest_of(rig.runtime.run(collect(rig.segments.list_segments()))[0].name)
    )
    assert restored.segment(1, 0, b"").txn_index_empty


def test_a_manifest_for_which_the_record_does_not_vouch_is_refused() -> None:
    rig, whole = uploaded()
    other = msgspec.structs.replace(whole, custom_metadata=b"\x01\0\0\0\0")
    with pytest.raises(
        SegmentCorruptError, match=r"\.manifest: found checksum 01[0-9a-f]{8}; .*0100000000, says the record"
    ):
        rig.runtime.run(rig.segments.manifest(other))


def test_the_manifest_of_another_segment_is_refused() -> None:
    rig, whole = uploaded()
    other = segment(segment_id=bytes(16))
    rig.upload(other)
    rig.bucket.replace(MANIFEST_KEY, rig.bucket.read(object_key(other, MANIFEST)))
    with pytest.raises(SegmentCorruptError, match="the manifest of"):
        rig.runtime.run(rig.segments.read_range(whole, 0, 1))


@pytest.mark.parametrize("damage", [b"", b"{", b"{}", b"[]", b"\xff"])
def test_an_object_that_is_no_manifest_is_refused(damage: bytes) -> None:
    rig, _ = uploaded()
    rig.bucket.replace(MANIFEST_KEY, damage)
    with pytest.raises(SegmentCorruptError, match=r"\.manifest: found no manifest"):
        rig.runtime.run(rig.segments.manifest(segment()))


def test_a_manifest_whose_parts_do_not_fit_is_refused() -> None:
    rig, _ = uploaded()
    good = msgspec.json.decode(rig.bucket.read(MANIFEST_KEY))
    changes: list[dict[str, object]] = [
        {"version": 2},
        {"files": {}},
        {"chunk_bytes": 0},
        {"chunk_bytes": 7},
        {"chunk_crcs": "AAAA"},
    ]
    for change in changes:
        rig.bucket.replace(MANIFEST_KEY, msgspec.json.encode({**good, **change}))
        with pytest.raises(SegmentCorruptError):
            rig.runtime.run(rig.segments.manifest(segment()))


def test_a_field_of_a_later_version_is_no_error() -> None:
    rig, _ = uploaded()
    good = msgspec.json.decode(rig.bucket.read(MANIFEST_KEY))
    rig.bucket.replace(MANIFEST_KEY, msgspec.json.encode({**good, "codec": "zstd"}))
    rig.runtime.run(rig.segments.manifest(segment()))


def test_manifests_are_read_once_as_long_as_they_are_kept() -> None:
    rig, whole = uploaded()
    before = rig.bucket.requests
    for _ in range(5):
        rig.runtime.run(rig.segments.read_range(whole, 0, CHUNK))
    assert rig.bucket.requests == before + 1 + 5
    for n in range(MANIFESTS_KEPT):
        other = segment(segment_id=bytes([n]) * 16)
        rig.upload(other)
        rig.runtime.run(rig.segments.manifest(other))
    assert len(rig.segments._manifests) == MANIFESTS_KEPT
    assert whole.segment_id not in rig.segments._manifests


def test_a_deleted_segment_is_gone_and_may_be_deleted_again() -> None:
    rig, whole = uploaded()
    rig.runtime.run(rig.segments.manifest(whole))
    rig.runtime.run(rig.segments.delete(whole))
    assert rig.bucket.keys() == []
    rig.runtime.run(rig.segments.delete(whole))
    with pytest.raises(ObjectNotFoundError):
        rig.runtime.run(rig.segments.read_range(whole, 0, 1))


@for_each([(fate, nth) for fate in (Fate.UNAVAILABLE, Fate.LOST_ANSWER) for nth in range(1, 8)])
def test_a_deletion_that_fails_anywhere_leaves_garbage_or_a_whole_segment(fate: Fate, nth: int) -> None:
    rig, whole = uploaded()
    rig.bucket.faults.scripted = {rig.bucket.requests + nth: fate}
    with pytest.raises(StoreUnavailableError):
        rig.runtime.run(rig.segments.delete(whole))
    for stored in rig.runtime.run(collect(rig.segments.list_segments())):
        assert not stored.is_whole or rig.runtime.run(rig.segments.verify(whole)) == []
    rig.runtime.run(rig.segments.delete(whole))
    assert rig.bucket.keys() == []


def test_a_listing_has_each_segment_once_by_partition_and_offset() -> None:
    rig = Rig()
    for start, segment_id in ((1000, b"b"), (100, b"a"), (100, b"c")):
        rig.upload(segment(start, segment_id * 16))
    elsewhere = msgspec.structs.replace(segment(), partition=TopicIdPartition(bytes(16), 30, "ticks"))
    rig.upload(elsewhere)
    rig.bucket.put("blumfeld-cluster.json", b"{}", rig.runtime)
    rig.bucket.put("zzz/somebody-elses.log", b"x", rig.runtime)
    rig.bucket.lose(object_key(segment(100, b"c" * 16), MANIFEST))
    stored_segments = rig.runtime.run(collect(rig.segments.list_segments()))
    assert [
        (s.name.partition.partition, s.name.start_offset, s.name.segment_id[:1], s.is_whole)
        for s in stored_segments
    ] == [
        (3, 100, b"c", False),
        (3, 100, b"a", True),
        (3, 1000, b"b", True),
        (30, 100, b"d", True),
    ]
    assert [len(s.objects) for s in stored_segments] == [6, 7, 7, 7]
    mine = rig.runtime.run(collect(rig.segments.list_segments(partition_prefix(PARTITION))))
    assert mine == stored_segments[:3]
    assert stored_segments[0].size_bytes == len(LOG) + 24 + 36 + 34 + 8 + 8
    assert stored_segments[1].modified_ms < stored_segments[0].modified_ms


def test_a_verification_names_everything_that_is_wrong() -> None:
    rig, whole = uploaded()
    assert rig.runtime.run(rig.segments.verify(whole)) == []
    rig.bucket.rot(LOG_KEY, 7)
    rig.bucket.lose(object_key(whole, "timeindex"))
    rig.bucket.replace(object_key(whole, "index"), b"")
    wrong = msgspec.structs.replace(whole, end_offset=7)
    problems = rig.runtime.run(rig.segments.verify(wrong))
    by_suffix = {problem.key.rpartition(".")[2]: problem for problem in problems}
    assert sorted(by_suffix) == ["index", "log", "manifest", "timeindex"]
    assert by_suffix["timeindex"] == SegmentProblem(object_key(whole, "timeindex"), "nothing", "36 bytes")
    assert by_suffix["index"].found == "0 bytes"
    assert by_suffix["log"].found.startswith("CRC32C ")
    assert (by_suffix["manifest"].found, by_suffix["manifest"].written) == (
        "end_offset 149",
        "7, says the record",
    )


def test_a_verification_of_a_segment_without_a_manifest_says_so() -> None:
    rig, whole = uploaded()
    rig.bucket.lose(MANIFEST_KEY)
    assert rig.runtime.run(rig.segments.verify(whole)) == [
        SegmentProblem(MANIFEST_KEY, "nothing", "a manifest")
    ]


def test_a_store_that_is_away_is_no_problem_of_a_segment() -> None:
    rig, whole = uploaded()
    rig.store.go_away(60_000)
    with pytest.raises(StoreUnavailableError):
        rig.runtime.run(rig.segments.verify(whole))
