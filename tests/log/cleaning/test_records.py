"""Walks over records in bulk, against the decoder that makes records of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blumfeld.log.cleaning.records import keep_records, shift_timestamps, walk_deltas, walk_ends, walk_keys
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.record_batch import HEADER, RecordBatch
from blumfeld.wire.batches.records import Record, records
from blumfeld.wire.errors import InvalidRecord

T = 1_000_000

some_bytes = st.binary(max_size=5) | st.sampled_from([b"x" * 63, b"x" * 64, b"y" * 8192, b"z" * 20_000])
made_records = st.lists(
    st.builds(
        Record,
        st.none() | some_bytes,
        st.none() | some_bytes,
        st.just([])
        | st.lists(st.tuples(st.sampled_from(["", "h", "n" * 70]), st.none() | some_bytes), max_size=2),
        st.integers(T - 9000, T + 9000) | st.just(-1) | st.just(1 << 60),
        st.integers(0, 200),
    ),
    min_size=1,
    max_size=8,
)


def body_of(made: list[Record], keep_offsets: bool = False) -> bytes:
    return bytes(build_batch(made, keep_offsets=keep_offsets)[61:])


@given(made_records, st.booleans(), st.binary(max_size=3))
def test_keys_deltas_and_nulls_are_those_of_the_decoder(
    made: list[Record], dense: bool, before: bytes
) -> None:
    body = body_of(made, keep_offsets=not dense)
    data, at, end = before + body + b"after", len(before), len(before) + len(body)
    walked = walk_keys(data, at, end, len(made), dense)
    assert walked.keys == [record.key or b"" for record in made]
    assert walked.without_key == [i for i, record in enumerate(made) if record.key is None]
    assert walked.tombstones == [i for i, record in enumerate(made) if record.value is None]
    expected = list(range(len(made))) if dense else [record.offset for record in made]
    assert list(walked.deltas) == expected == walk_deltas(data, at, end, len(made))


@given(made_records, st.data())
def test_kept_records_are_the_same_bytes(made: list[Record], data: st.DataObject) -> None:
    keep = data.draw(st.lists(st.booleans(), min_size=len(made), max_size=len(made)))
    body = body_of(made, keep_offsets=True)
    ends = walk_ends(body, 0, len(body), len(made))
    starts = [0, *ends[:-1]]
    kept = keep_records(body, 0, len(body), len(made), keep)
    assert kept.body == b"".join(body[a:b] for a, b, stays in zip(starts, ends, keep, strict=True) if stays)
    deltas = [record.timestamp - made[0].timestamp for record, stays in zip(made, keep, strict=True) if stays]
    assert (kept.records, kept.max_delta) == (len(deltas), max(deltas, default=-1 << 63))


@given(made_records, st.integers(-(10**13), 10**13))
def test_shifted_records_have_the_same_times_under_another_base(made: list[Record], shift_ms: int) -> None:
    whole = build_batch(made)
    body = shift_timestamps(bytes(whole[61:]), len(made), shift_ms)
    fields = list(HEADER.unpack_from(whole))
    fields[1] = 49 + len(body)
    fields[7] -= shift_ms
    shifted = RecordBatch(memoryview(bytearray(HEADER.pack(*fields) + body)))
    assert list(records(shifted)) == list(records(RecordBatch(memoryview(whole))))


@pytest.mark.parametrize("walk", ["keys", "ends", "deltas", "keep"])
def test_records_that_break_the_format_are_refused(walk: str) -> None:
    """Too many, too few, cut off, or a key beyond its record."""
    body = body_of([Record(b"key", b"value" * 30, timestamp=T), Record(b"k", None, timestamp=T)])

    def walked(data: bytes, count: int) -> object:
        if walk == "keys":
            return walk_keys(data, 0, len(data), count, True)
        if walk == "ends":
            return walk_ends(data, 0, len(data), count)
        if walk == "deltas":
            return walk_deltas(data, 0, len(data), count)
        return keep_records(data, 0, len(data), count, [1] * count)

    walked(body, 2)
    for data, count in ((body, 1), (body, 3), (body[:-1], 2), (body + b"\x0e", 2), (b"\x80" * 12, 1)):
        with pytest.raises(InvalidRecord):
            walked(data, count)


@pytest.mark.parametrize("key_length", [13, 3, 60])
def test_a_key_that_leaves_its_record_is_refused(key_length: int) -> None:
    """Zigzag: 3 is a length of -2."""
    body = bytearray(body_of([Record(b"key", b"v", timestamp=T)]))
    body[4] = key_length
    with pytest.raises(InvalidRecord, match="key"):
        walk_keys(bytes(body), 0, len(body), 1, True)
