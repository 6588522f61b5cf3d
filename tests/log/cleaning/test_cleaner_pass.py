"""A round of cleaning, rule by rule (Kafka's ``Cleaner``)."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from blumfeld.log.cleaning.offset_map import OffsetMap
from blumfeld.spi.compaction import AbortedTransaction, LastProducerBatch
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import Record, records
from blumfeld.wire.compression.codec import Codec

from .cleaning_logs import DAY_MS, MemoryLog, MemorySource, T, batch, marker

A, B, C = b"a", b"b", b"c"
V = b"value"


def padding(base_offset: int) -> bytes:
    """A last batch that stays: what is before it isn't held by being the last of the range."""
    return batch(base_offset, (b"padding", V))


def test_every_key_keeps_its_newest_record() -> None:
    """Over batches and segments; offsets stay what they were."""
    log = MemoryLog(
        [batch(0, (A, b"1"), (B, b"1")), batch(2, (A, b"2"))], [batch(3, (B, b"2"), (C, b"1"), (A, b"3"))]
    )
    result = log.round()
    assert log.survivors() == [(3, B, b"2"), (4, C, b"1"), (5, A, b"3")]
    assert (result.cleaned_end_offset, result.keys) == (6, 3)
    assert (result.records_read, result.records_kept) == (6, 3)
    assert (result.segments_before, result.segments_after) == (2, 1)
    assert result.bytes_after == sum(source.size_bytes for source in log.sources) < result.bytes_before


def test_the_head_loses_what_the_dirty_part_has_anew() -> None:
    """Below the first dirty offset every key stands once, and none of it is mapped."""
    log = MemoryLog([batch(0, (A, b"1"), (B, b"1"))], [batch(2, (A, b"2"), (C, b"1"))])
    assert log.round(2).keys == 2
    assert log.survivors() == [(1, B, b"1"), (2, A, b"2"), (3, C, b"1")]


def test_nothing_at_or_above_the_end_is_looked_at() -> None:
    """A newer record there doesn't push out an older one."""
    log = MemoryLog([batch(0, (A, b"1"))], [batch(1, (A, b"2"))])
    log.round(end_offset=1)
    assert log.survivors() == [(0, A, b"1"), (1, A, b"2")]
    assert [target.replaced for target in log.targets] == [[0]]


def test_a_batch_keeps_its_offsets_producer_and_epoch() -> None:
    """Also when its first and last record fall out; the highest timestamp is that of what is left."""
    log = MemoryLog(
        [batch(10, (A, b"1"), (B, b"1"), (C, b"1"), producer_id=7, sequence=40, codec=Codec.ZSTD)],
        [batch(13, (A, b"2"), (C, b"2"))],
    )
    log.round()
    first = log.batches()[0]
    assert (first.base_offset, first.last_offset, first.record_count) == (10, 12, 1)
    assert (first.producer_id, first.producer_epoch, first.base_sequence, first.last_sequence) == (
        7,
        0,
        40,
        42,
    )
    assert (first.partition_leader_epoch, first.codec, first.max_timestamp) == (3, Codec.ZSTD, T + 1)
    assert [(record.offset, record.timestamp) for record in records(first)] == [(11, T + 1)]


def test_a_batch_stamped_by_the_broker_keeps_its_time() -> None:
    """LogAppendTime: no record has a time of its own."""
    made = [Record(A, b"1", timestamp=T), Record(B, b"1", timestamp=T + 9)]
    log = MemoryLog([build_batch(made, log_append_time_ms=T + 50)], [batch(2, (B, b"2"))])
    log.round()
    assert log.batches()[0].max_timestamp == T + 50
    assert [record.timestamp for record in records(log.batches()[0])] == [T + 50]


@pytest.mark.parametrize("codec", list(Codec))
def test_untouched_batches_are_the_same_bytes_in_one_buffer(codec: Codec) -> None:
    """Nothing of them is compressed again."""
    batches = [batch(i * 2, (b"%d" % i, V * 9), (b"x%d" % i, V * 9), codec=codec) for i in range(5)]
    log = MemoryLog(batches)
    log.round()
    assert log.sources[0].data == b"".join(batches)
    assert log.targets[0].buffers == 1


def test_a_round_may_begin_and_end_inside_a_batch() -> None:
    """After a round that the full map ended. With room for two keys, three rounds."""
    log = MemoryLog([batch(0, (A, b"1"), (B, b"1"), (C, b"1"), (A, b"2"))], [batch(4, (C, b"2"), (B, b"2"))])
    map_bytes = 24 * 3  # three slots, of which 90 % are two
    assert log.round(0, map_bytes=map_bytes).cleaned_end_offset == 2
    assert [target.replaced for target in log.targets] == [[0]]
    assert log.round(2, map_bytes=map_bytes).cleaned_end_offset == 4
    assert log.survivors() == [(1, B, b"1"), (2, C, b"1"), (3, A, b"2"), (4, C, b"2"), (5, B, b"2")]
    assert log.round(4, map_bytes=map_bytes).cleaned_end_offset == 6
    assert log.survivors() == [(3, A, b"2"), (4, C, b"2"), (5, B, b"2")]


def test_records_without_a_key_are_dropped_and_counted() -> None:
    """In the dirty part and in the head; not beyond what was mapped."""
    log = MemoryLog([batch(0, (None, V), (A, V))], [batch(2, (B, V), (None, V), (C, V))])
    result = log.round(2)
    assert result.invalid_records == 2
    assert log.survivors() == [(1, A, V), (2, B, V), (4, C, V)]


def test_an_empty_key_is_a_key() -> None:
    """Not the same as none."""
    log = MemoryLog([batch(0, (b"", b"1")), batch(1, (b"", b"2"))])
    assert log.round().invalid_records == 0
    assert log.survivors() == [(1, b"", b"2")]


def test_in_a_large_dirty_part_no_key_is_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of which nothing stays isn't even decompressed; in a small one, or one of few and far offsets,
    it's cheaper to look up than to walk over the map.
    """
    looked_up: list[int] = []
    real = OffsetMap.get_many

    def get_many(self: OffsetMap, keys: Sequence[bytes]) -> list[int]:
        looked_up.append(len(keys))
        return real(self, keys)

    monkeypatch.setattr(OffsetMap, "get_many", get_many)
    many = [batch(i * 100, *((b"%d" % (j % 60), V) for j in range(100)), codec=Codec.LZ4) for i in range(150)]
    log = MemoryLog(many)
    assert log.round().records_kept == 60
    assert looked_up == []
    far = [batch((i << 40) + j, (b"k", V)) for i in range(3) for j in range(2)]
    log = MemoryLog(*([piece] for piece in far))
    assert log.round().records_kept == 1
    assert sum(looked_up) == 6


# Tombstones


def test_a_tombstone_goes_its_retention_after_the_round_that_first_saw_it() -> None:
    """Its batch says when: the horizon stands in the base timestamp, and times stay what they were."""
    log = MemoryLog([batch(0, (A, b"1")), batch(1, (A, None), (B, V)), padding(3)])
    log.round(now_ms=T)
    stamped = log.batches()[0]
    assert stamped.delete_horizon_ms == T + DAY_MS
    assert [(record.offset, record.key, record.value, record.timestamp) for record in records(stamped)] == [
        (1, A, None, T),
        (2, B, V, T + 1),
    ]
    assert stamped.max_timestamp == T + 1
    before = log.sources[0].data
    log.round(4, now_ms=T + DAY_MS - 1)
    assert log.sources[0].data == before
    log.round(4, now_ms=T + DAY_MS)
    assert log.survivors() == [(2, B, V), (3, b"padding", V)]
    left = log.batches()[0]
    assert left.delete_horizon_ms == T + DAY_MS
    assert [record.timestamp for record in records(left)] == [T + 1]
    assert left.max_timestamp == T + 1


def test_a_tombstone_that_was_replaced_goes_at_once() -> None:
    """And its batch needs no horizon."""
    log = MemoryLog([batch(0, (A, None), (B, V))], [batch(2, (A, V))])
    log.round()
    assert log.survivors() == [(1, B, V), (2, A, V)]
    assert [found.delete_horizon_ms for found in log.batches()] == [None, None]


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.GZIP, Codec.SNAPPY])
def test_a_compressed_batch_gets_its_horizon(codec: Codec) -> None:
    """In the same codec."""
    log = MemoryLog([batch(0, (A, None), (B, V * 50), codec=codec), padding(2)])
    log.round(delete_retention_ms=5)
    assert (log.batches()[0].delete_horizon_ms, log.batches()[0].codec) == (T + 5, codec)
    assert log.survivors()[:2] == [(0, A, None), (1, B, V * 50)]


# Transactions


def aborted(producer_id: int, first_offset: int, last_offset: int) -> AbortedTransaction:
    """As the log's owner knows it."""
    return AbortedTransaction(producer_id, first_offset, last_offset, last_offset + 1)


def test_aborted_records_go_and_push_nothing_out() -> None:
    """The marker stays while data was seen, and its entry in the index with it."""
    entry = aborted(9, 1, 3)
    log = MemoryLog(
        [batch(0, (A, b"1")), batch(1, (A, b"2"), (B, b"2"), producer_id=9, sequence=0, transactional=True)],
        [marker(3, 9, commit=False), padding(4)],
    )
    log.round(aborted=[entry])
    assert log.survivors() == [(0, A, b"1"), (4, b"padding", V)]
    assert [found.base_offset for found in log.batches() if found.is_control] == [3]
    assert log.batches()[1].delete_horizon_ms is None
    assert log.targets[0].aborted == [entry]


@pytest.mark.parametrize("commit", [False, True])
def test_a_marker_goes_after_its_data_and_its_horizon(commit: bool) -> None:
    """Three rounds: data go, the horizon is set, the marker goes. A transaction's end isn't needed in the index
    then.
    """
    entries = [] if commit else [aborted(9, 0, 1)]
    log = MemoryLog(
        [batch(0, (A, b"1"), producer_id=9, sequence=0, transactional=True), marker(1, 9, commit=commit)],
        [batch(2, (A, b"2")), padding(3)],
    )
    log.round(aborted=entries)
    assert [found.base_offset for found in log.batches()] == [1, 2, 3]
    assert log.batches()[0].delete_horizon_ms is None
    log.round(4, aborted=entries, now_ms=T + 1)
    assert log.batches()[0].delete_horizon_ms == T + 1 + DAY_MS
    assert log.targets[0].aborted == []
    log.round(4, aborted=entries, now_ms=T + DAY_MS)
    assert [found.base_offset for found in log.batches()] == [1, 2, 3]
    log.round(4, aborted=entries, now_ms=T + 1 + DAY_MS)
    assert [found.base_offset for found in log.batches()] == [2, 3]


def test_an_old_entry_of_the_index_does_not_abort_what_comes_later() -> None:
    """Its marker is gone; the producer's next transaction was committed."""
    log = MemoryLog(
        [padding(0), batch(5, (A, b"1"), producer_id=9, sequence=3, transactional=True)],
        [marker(6, 9, commit=True)],
    )
    log.round(aborted=[aborted(9, 0, 2)])
    assert log.survivors() == [(0, b"padding", V), (5, A, b"1")]


def test_an_old_entry_of_the_index_does_not_hide_a_newer_one() -> None:
    """The producer's next transaction was aborted too."""
    log = MemoryLog(
        [padding(0), batch(5, (A, b"1"), producer_id=9, sequence=3, transactional=True)],
        [marker(6, 9, commit=False)],
    )
    log.round(aborted=[aborted(9, 0, 2), aborted(9, 5, 6)])
    assert log.survivors() == [(0, b"padding", V)]


def test_a_transaction_over_two_rounds_stays_aborted() -> None:
    """The second begins inside of it."""
    entry = aborted(9, 0, 4)
    log = MemoryLog(
        [batch(0, (B, V), producer_id=9, sequence=0, transactional=True), batch(1, (A, b"1"))],
        [batch(2, (A, b"2"), (B, V), producer_id=9, sequence=1, transactional=True)],
        [marker(4, 9, commit=False), padding(5)],
    )
    log.round(2, aborted=[entry])
    assert log.survivors() == [(1, A, b"1"), (5, b"padding", V)]


# Batches that are left empty


def test_the_last_data_batch_of_a_producer_stays_as_a_header() -> None:
    """With its sequence and its highest timestamp; in a later round too, until the producer is known no more."""
    log = MemoryLog(
        [
            batch(0, (A, b"1"), (B, b"1"), producer_id=5, sequence=6),
            batch(2, (A, b"2"), (B, b"2")),
            padding(4),
        ]
    )
    producers = {5: LastProducerBatch(1, 0)}
    for first_dirty in (0, 5):
        log.round(first_dirty, producers=producers)
        empty = log.batches()[0]
        assert (empty.size_bytes, empty.record_count, empty.base_timestamp) == (61, 0, -1)
        assert (empty.base_offset, empty.last_offset, empty.last_sequence) == (0, 1, 7)
        assert (empty.max_timestamp, empty.partition_leader_epoch) == (T + 1, 3)
    log.round(5)
    assert log.batches()[0].base_offset == 2


def test_the_last_marker_of_a_producer_without_data_stays() -> None:
    """It has the epoch that fences. With data known elsewhere it goes."""
    log = MemoryLog([marker(0, 5, commit=True), padding(1)])
    for now_ms in (T, T + DAY_MS, T + 3 * DAY_MS):
        log.round(2, now_ms=now_ms, producers={5: LastProducerBatch(-1, 0)})
        assert log.batches()[0].base_offset == 0
    assert log.batches()[0].record_count == 0
    log.round(2, now_ms=T + 4 * DAY_MS, producers={5: LastProducerBatch(-1, 1)})
    assert [found.base_offset for found in log.batches()] == [1]


def test_the_last_batch_of_the_range_stays_as_a_header() -> None:
    """So that the next segment's offsets go on where this one's end."""
    entry = aborted(9, 1, 2)
    log = MemoryLog(
        [batch(0, (A, V)), batch(1, (A, b"2"), producer_id=9, sequence=0, transactional=True)],
        [marker(2, 9, commit=False)],
    )
    log.round(aborted=[entry], end_offset=2)
    assert [(found.base_offset, found.record_count) for found in log.batches()] == [(0, 1), (1, 0), (2, 1)]


# Segments


def test_segments_are_grouped_up_to_their_size() -> None:
    """By what they hold before; each takes the time of the last one that it replaces."""
    log = MemoryLog()
    for index in range(5):
        log.add([batch(index, (A, V * 100))], modified_ms=T + index)
    size = log.sources[0].size_bytes
    log.round(segment_bytes=2 * size + 1)
    assert [target.replaced for target in log.targets] == [[0, 1], [2, 3], [4]]
    assert [target.modified_ms for target in log.targets] == [T + 1, T + 3, T + 4]
    assert [source.size_bytes for source in log.sources] == [0, 0, size]


def test_segments_are_not_grouped_where_their_indexes_would_not_fit() -> None:
    """Entries are bounded by bytes."""
    log = MemoryLog(*([batch(index, (b"%d" % index, V * 2000))] for index in range(3)))
    log.round(segment_index_bytes=12 * 5)
    assert [target.replaced for target in log.targets] == [[0], [1], [2]]


def test_segments_are_not_grouped_over_more_offsets_than_an_index_takes() -> None:
    """31 bits."""
    log = MemoryLog([batch(0, (A, V))], [batch((1 << 31) - 1, (B, V))], [batch(1 << 31, (C, V))])
    log.round()
    assert [target.replaced for target in log.targets] == [[0, 1], [1 << 31]]


def test_a_log_larger_than_a_chunk_is_cleaned_in_steps() -> None:
    """Batches across the border of chunks, and one that is larger than a chunk."""
    chance = random.Random(1)
    large = [batch(0, (A, chance.randbytes(3 << 20)))]
    many = [batch(1 + i, (b"%d" % (i % 50), chance.randbytes(9000))) for i in range(300)]
    log = MemoryLog(large, many)
    result = log.round()
    assert [offset for offset, _, _ in log.survivors()] == [0, *range(251, 301)]
    assert result.bytes_read == 2 * result.bytes_before


# Damage


@pytest.mark.parametrize("at", [70, 21, 30])
@pytest.mark.parametrize("first_dirty", [0, 3])
def test_a_flipped_bit_ends_the_round(at: int, first_dirty: int) -> None:
    """In the dirty part and in the head; where it stands is said."""
    good = batch(0, (A, V))
    bad = bytearray(batch(1, (B, V), (C, V)))
    bad[at] ^= 4
    log = MemoryLog([good, batch(1, (B, V), (C, V))], [batch(3, (A, b"2"))])
    log.sources[0] = MemorySource(0, 3, good + bad)
    with pytest.raises(OSError, match=rf"segment 0{{20}}, byte {len(good)}: .*CRC"):
        log.round(first_dirty)


@pytest.mark.parametrize("cut", [1, 30, 70])
def test_a_cut_batch_ends_the_round(cut: int) -> None:
    """Sealed segments end with a whole batch."""
    good, other = batch(0, (A, V)), batch(1, (B, V))
    log = MemoryLog([good, other])
    log.sources[0] = MemorySource(0, 2, good + other[:-cut])
    with pytest.raises(OSError, match=f"byte {len(good)}: .*cut off"):
        log.round()


def test_a_segment_shorter_than_it_says_ends_the_round() -> None:
    """Somebody cut the file."""
    log = MemoryLog([batch(0, (A, V))])
    log.sources[0].size_bytes += 10
    with pytest.raises(OSError, match="ends here"):
        log.round()


def test_offsets_that_fall_end_the_round() -> None:
    """And those beyond the segment."""
    data = batch(5, (A, V)) + batch(4, (A, V))
    log = MemoryLog([batch(4, (A, V)), batch(5, (A, V))])
    log.sources[0] = MemorySource(4, 6, data)
    with pytest.raises(OSError, match=r"offsets 4\.\.4"):
        log.round()


def test_an_old_format_ends_the_round() -> None:
    """Nothing of it is known here."""
    data = bytearray(batch(0, (A, V)))
    data[16] = 1
    log = MemoryLog([batch(0, (A, V))])
    log.sources[0] = MemorySource(0, 1, bytes(data))
    with pytest.raises(OSError, match="format 1"):
        log.round()


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_records_that_cannot_be_decompressed_end_the_round(codec: Codec) -> None:
    """Their CRC is right."""
    made = build_batch([Record(A, V * 20)], codec=codec)
    made[61:] = b"\x00" * (len(made) - 61)
    view = RecordBatch(memoryview(made))
    view.set_log_append_time(T)
    with pytest.raises(OSError, match="byte 0"):
        MemoryLog([bytes(made)]).round()
