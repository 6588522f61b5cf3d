"""Offset and time index: Kafka's bytes by hand, look-ups against a plain scan, damage."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blumfeld.log.segments.index import CorruptIndex, OffsetIndex, SegmentIndexer, TimeIndex

INT32_MAX = 2**31 - 1


def test_an_offset_entry_is_8_bytes_and_a_time_entry_12() -> None:
    offsets, times = OffsetIndex(100), TimeIndex(100)
    offsets.append(163, 16349)
    times.maybe_append(0x1A1FD99D55A, 163)
    assert offsets.encode() == bytes.fromhex("0000003f00003fdd")
    assert times.encode() == bytes.fromhex("000001a1fd99d55a0000003f")


def test_an_empty_index_points_at_the_beginning() -> None:
    assert OffsetIndex(100).lookup(150) == (100, 0)
    assert TimeIndex(100).lookup(5) == (-1, 100)
    assert (OffsetIndex(100).last_offset, TimeIndex(100).last) == (100, (-1, 100))


def test_offsets_rise() -> None:
    index = OffsetIndex(100)
    index.append(105, 10)
    with pytest.raises(ValueError, match="not above"):
        index.append(105, 20)


@pytest.mark.parametrize("offset", [99, 100 + INT32_MAX + 1])
def test_an_offset_out_of_range_is_refused(offset: int) -> None:
    with pytest.raises(ValueError, match="doesn't fit into an index with base 100"):
        OffsetIndex(100).append(offset, 0)
    OffsetIndex(100).append(100 + INT32_MAX, 0)


def test_a_time_entry_needs_a_higher_timestamp_and_no_lower_offset() -> None:
    index = TimeIndex(0)
    assert index.maybe_append(10, 5)
    assert not index.maybe_append(10, 6)
    assert not index.maybe_append(9, 7)
    with pytest.raises(ValueError, match="below the last"):
        index.maybe_append(11, 4)
    assert len(index) == 1


def test_fullness_leaves_room_for_the_entry_of_a_roll() -> None:
    offsets, times = OffsetIndex(0), TimeIndex(0)
    for n in range(2):
        offsets.append(n, n)
        times.maybe_append(n, n)
    assert not offsets.is_full(24)
    assert offsets.is_full(23)
    assert times.is_full(36)
    assert not times.is_full(48)


def test_read_only_bytes_are_read_in_place_and_copied_on_the_first_append() -> None:
    data = bytes.fromhex("0000000500000010")
    index = OffsetIndex(0, memoryview(data))
    assert index.lookup(7) == (5, 16)
    index.append(9, 32)
    assert index.encode(1) == bytes.fromhex("0000000900000020")
    assert len(data) == 8


def test_a_cut_file_is_corrupt() -> None:
    with pytest.raises(CorruptIndex, match="whole number"):
        OffsetIndex(0, b"1234567")
    with pytest.raises(CorruptIndex, match="whole number"):
        TimeIndex(0, b"12345678901")


@pytest.mark.parametrize(
    "data", ["0000000500000010" * 2, "0000000500000010" + "0000000600000010", "0000000500000040", "00" * 16]
)
def test_an_offset_index_that_cannot_be_is_found_out(data: str) -> None:
    with pytest.raises(CorruptIndex, match="entry"):
        OffsetIndex(0, bytes.fromhex(data)).check(64)


@pytest.mark.parametrize("second", ["000000000000000500000006", "000000000000000600000004"])
def test_a_time_index_that_cannot_be_is_found_out(second: str) -> None:
    with pytest.raises(CorruptIndex, match="entry 1"):
        TimeIndex(0, bytes.fromhex("000000000000000500000005" + second)).check()


def test_an_entry_is_due_when_more_than_the_interval_was_written() -> None:
    indexer = SegmentIndexer(OffsetIndex(0), TimeIndex(0), interval_bytes=100)
    added = [indexer.add(n, n * 50, 50, max_timestamp_ms=1000 - n) for n in range(5)]
    assert added == [False, False, False, True, False]
    assert indexer.offsets.entry(0) == (3, 150)
    assert indexer.times.entry(0) == (1000, 0)
    indexer.seal()
    assert len(indexer.times) == 1


def test_a_sealed_segment_knows_its_highest_timestamp() -> None:
    indexer = SegmentIndexer(OffsetIndex(0), TimeIndex(0), interval_bytes=4096)
    for offset, timestamp_ms in enumerate([5, 9, 9, 3]):
        indexer.add(offset, offset * 50, 50, timestamp_ms)
    indexer.seal()
    indexer.seal()
    assert indexer.times.encode() == TimeIndex(0, bytes.fromhex("000000000000000900000001")).encode()


def test_batches_without_timestamps_leave_no_time_entry() -> None:
    indexer = SegmentIndexer(OffsetIndex(0), TimeIndex(0), interval_bytes=0)
    indexer.add(0, 0, 50, -1)
    indexer.add(1, 50, 50, -1)
    indexer.seal()
    assert (len(indexer.offsets), len(indexer.times)) == (1, 0)


batches = st.tuples(st.integers(1, 3), st.integers(1, 50), st.integers(-1, 9))


@given(st.lists(st.lists(batches, min_size=1, max_size=12), max_size=6), st.sampled_from([0, 30, 100, 4096]))
def test_a_run_of_batches_is_indexed_as_they_would_be_one_by_one(
    runs: list[list[tuple[int, int, int]]], interval_bytes: int
) -> None:
    alone = SegmentIndexer(OffsetIndex(0), TimeIndex(0), interval_bytes)
    together = SegmentIndexer(OffsetIndex(0), TimeIndex(0), interval_bytes)
    offset, position = -1, 0
    for run in runs:
        last_offsets, positions, indexed = [], [], False
        for records, size, timestamp_ms in run:
            offset += records
            last_offsets.append(offset)
            positions.append(position)
            indexed |= alone.add(offset, position, size, timestamp_ms)
            position += size
        assert together.add_run(last_offsets, positions, position, [row[2] for row in run]) == indexed
    for index in (alone, together):
        index.seal()
    assert together.offsets.encode() == alone.offsets.encode()
    assert together.times.encode() == alone.times.encode()
    assert together.max_timestamp_offset == alone.max_timestamp_offset


rows = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 50), st.integers(0, 4)), max_size=40)


@given(rows, st.integers(0, 120), st.integers(0, 40))
def test_look_ups_agree_with_a_scan(rows: list[tuple[int, int, int]], target: int, time: int) -> None:
    base, offset, position, timestamp = 1000, 999, 0, -1
    offsets, times = OffsetIndex(base), TimeIndex(base)
    at: list[tuple[int, int]] = []
    when: list[tuple[int, int]] = []
    for step, size, later in rows:
        offset += step
        timestamp += later
        offsets.append(offset, position)
        at.append((offset, position))
        if times.maybe_append(timestamp, offset):
            when.append((timestamp, offset))
        position += size
    offsets.check(position + 1)
    times.check()
    target += base
    for index in (offsets, OffsetIndex(base, memoryview(offsets.encode()))):
        assert index.lookup(target) == max([e for e in at if e[0] <= target], default=(base, 0))
    for index_ in (times, TimeIndex(base, memoryview(times.encode()))):
        assert index_.lookup(time) == max([e for e in when if e[0] <= time], default=(-1, base))
    offsets.truncate_to(target)
    times.truncate_to(target)
    assert [offsets.entry(n) for n in range(len(offsets))] == [e for e in at if e[0] < target]
    assert [times.entry(n) for n in range(len(times))] == [e for e in when if e[1] < target]


@pytest.mark.parametrize(
    "gap", [lambda n: n * n + 1, lambda n: 2 ** (n % 13), lambda n: 1 + 5_000 * (n == 40)]
)
def test_every_offset_is_found_where_batches_differ_in_size(gap: Callable[[int], int]) -> None:
    """Where the guess by interpolation misses, the search goes on by halves."""
    index, entries, offset = OffsetIndex(0), [(0, 0)], 0
    for number in range(80):
        offset += gap(number)
        index.append(offset, number * 16 + 16)
        entries.append((offset, number * 16 + 16))
    for target in {entry_offset + away for entry_offset, _ in entries for away in (-1, 0, 1)} - {-1}:
        assert index.lookup(target) == max(entry for entry in entries if entry[0] <= target)
