"""Rules of a round of cleaning that the model of test_model.py doesn't know: counts, groups, costs and damage."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from blumfeld.log.cleaning.offset_map import OffsetMap
from blumfeld.spi.compaction import AbortedTransaction
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.compression.codec import Codec

from .cleaning_logs import MemoryLog, MemorySource, T, batch, marker

A, B, C = b"a", b"b", b"c"
V = b"value"


def padding(base_offset: int) -> bytes:
    """A last batch that stays: what is before it isn't held by being the last of the range."""
    return batch(base_offset, (b"padding", V))


def test_every_key_keeps_its_newest_record() -> None:
    log = MemoryLog(
        [batch(0, (A, b"1"), (B, b"1")), batch(2, (A, b"2"))], [batch(3, (B, b"2"), (C, b"1"), (A, b"3"))]
    )
    result = log.round()
    assert log.survivors() == [(3, B, b"2"), (4, C, b"1"), (5, A, b"3")]
    assert (result.cleaned_end_offset, result.keys) == (6, 3)
    assert (result.records_read, result.records_kept) == (6, 3)
    assert (result.segments_before, result.segments_after) == (2, 1)
    assert result.bytes_after == sum(source.size_bytes for source in log.sources) < result.bytes_before


def test_nothing_at_or_above_the_end_is_looked_at() -> None:
    log = MemoryLog([batch(0, (A, b"1"))], [batch(1, (A, b"2"))])
    log.round(end_offset=1)
    assert log.survivors() == [(0, A, b"1"), (1, A, b"2")]
    assert [target.replaced for target in log.targets] == [[0]]


@pytest.mark.parametrize("codec", list(Codec))
def test_untouched_batches_are_the_same_bytes_in_one_buffer(codec: Codec) -> None:
    batches = [batch(i * 2, (b"%d" % i, V * 9), (b"x%d" % i, V * 9), codec=codec) for i in range(5)]
    log = MemoryLog(batches)
    log.round()
    assert log.sources[0].data == b"".join(batches)
    assert log.targets[0].buffers == 1


def test_records_without_a_key_are_dropped_and_counted() -> None:
    log = MemoryLog([batch(0, (None, V), (A, V))], [batch(2, (B, V), (None, V), (C, V))])
    result = log.round(2)
    assert result.invalid_records == 2
    assert log.survivors() == [(1, A, V), (2, B, V), (4, C, V)]


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


# Transactions


@pytest.mark.parametrize("commit", [True, False])
def test_an_old_entry_of_the_index_says_nothing_of_the_producers_next_transaction(commit: bool) -> None:
    """The old one's marker is gone."""
    log = MemoryLog(
        [padding(0), batch(5, (A, b"1"), producer_id=9, sequence=3, transactional=True)],
        [marker(6, 9, commit=commit)],
    )
    entries = [AbortedTransaction(9, 0, 2, 3), *([] if commit else [AbortedTransaction(9, 5, 6, 7)])]
    log.round(aborted=entries)
    assert log.survivors() == [(0, b"padding", V), *([(5, A, b"1")] if commit else [])]


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
    log = MemoryLog(*([batch(index, (b"%d" % index, V * 2000))] for index in range(3)))
    log.round(segment_index_bytes=12 * 5)
    assert [target.replaced for target in log.targets] == [[0], [1], [2]]


def test_segments_are_not_grouped_over_more_offsets_than_an_index_takes() -> None:
    log = MemoryLog([batch(0, (A, V))], [batch((1 << 31) - 1, (B, V))], [batch(1 << 31, (C, V))])
    log.round()
    assert [target.replaced for target in log.targets] == [[0, 1], [1 << 31]]


def test_a_log_larger_than_a_chunk_is_cleaned_in_steps() -> None:
    chance = random.Random(1)
    large = [batch(0, (A, chance.randbytes(3 << 20)))]
    many = [batch(1 + i, (b"%d" % (i % 50), chance.randbytes(9000))) for i in range(300)]
    log = MemoryLog(large, many)
    result = log.round()
    assert [offset for offset, _, _ in log.survivors()] == [0, *range(251, 301)]
    assert result.bytes_read == 2 * result.bytes_before


# Damage


GOOD, OTHER = batch(0, (A, V)), batch(1, (B, V))


def damaged(data: bytes, at: int, byte: int) -> bytes:
    return data[:at] + bytes([byte]) + data[at + 1 :]


@pytest.mark.parametrize("first_dirty", [0, 2])
@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        *((GOOD + damaged(OTHER, at, OTHER[at] ^ 4), f"byte {len(GOOD)}: .*CRC") for at in (21, 30, 70)),
        *((GOOD + OTHER[:-cut], f"byte {len(GOOD)}: .*cut off") for cut in (1, 30, 70)),
        (GOOD + batch(0, (A, V)), r"offsets 0\.\.0"),
        (GOOD + damaged(OTHER, 16, 1), "format 1"),
        (GOOD, "ends here"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_damage_ends_the_round_in_the_dirty_part_and_in_the_head(
    data: bytes, complaint: str, first_dirty: int
) -> None:
    log = MemoryLog([GOOD, OTHER], [batch(2, (A, b"2"))])
    log.sources[0] = MemorySource(0, 2, data)
    if data == GOOD:
        log.sources[0].size_bytes += 10  # somebody cut the file
    with pytest.raises(OSError, match=rf"segment 0{{20}}, .*{complaint}"):
        log.round(first_dirty)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_records_that_cannot_be_decompressed_end_the_round(codec: Codec) -> None:
    """Their CRC is right."""
    made = build_batch([Record(A, V * 20)], codec=codec)
    made[61:] = b"\x00" * (len(made) - 61)
    RecordBatch(memoryview(made)).set_log_append_time(T)
    with pytest.raises(OSError, match="byte 0"):
        MemoryLog([bytes(made)]).round()
