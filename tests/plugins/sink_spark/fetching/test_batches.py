"""Responses into rows, beside the wire's own decoder of records; and bytes that are none."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.control_records import build_transaction_marker
from blumfeld.wire.batches.record_batch import CRC_FROM, HEADER_BYTES, RecordBatch, split_batches
from blumfeld.wire.batches.records import Record, records
from blumfeld.wire.compression.codec import Codec
from blumfeld.wire.errors import BrokerError
from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.fetching import batches as fetching
from blumfeld_sink_spark.fetching.batches import rows_of
from blumfeld_sink_spark.range_counter import Skips
from blumfeld_sink_spark.range_counts import ABORTED, ABSENT, CONTROL
from blumfeld_sink_spark.records import OffsetRange, Span
from blumfeld_sink_spark.rows import RAW_ROWS, RAW_ROWS_WITH_HEADERS
from tests.everyday import examples

EVERYTHING = OffsetRange("t", 3, 0, 1 << 62)
TIME_MS = 1_723_161_256_299

payloads = st.none() | st.binary(max_size=8) | st.integers(0, 20_000).map(lambda size: b"v" * size)
one_header = st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=200))
headers = st.lists(one_header, max_size=3).map(tuple)
times = st.integers(-1, 1 << 41) | st.integers(TIME_MS, TIME_MS + 300) | st.sampled_from([1 << 54, 1 << 62])
US_MAX = ((1 << 63) - 1) // 1000
"""The last µs whose ns fit into int64."""


@st.composite
def some_records(draw: st.DrawFn) -> list[Record]:
    gaps = draw(st.lists(st.integers(1, 3) | st.integers(1, 20_000), max_size=12))
    offsets = [sum(gaps[: nth + 1]) - gaps[0] for nth in range(len(gaps))]
    some = draw(st.sampled_from([headers, st.tuples(one_header)]))
    return [
        Record(draw(payloads), draw(payloads), draw(some), timestamp=draw(times), offset=offset)
        for offset in offsets
    ]


@st.composite
def some_batches(draw: st.DrawFn) -> bytes:
    base, data = 0, b""
    for batch_records in draw(st.lists(some_records(), max_size=4)):
        moved = [msgspec.structs.replace(each, offset=each.offset + base) for each in batch_records]
        batch = build_batch(
            moved,
            base_offset=base,
            codec=draw(st.sampled_from(Codec)),
            keep_offsets=True,
            log_append_time_ms=draw(st.none() | times),
            last_offset_delta=(moved[-1].offset - base if moved else 0) + draw(st.integers(0, 3)),
        )
        data += batch
        base = RecordBatch(memoryview(batch)).next_offset + draw(st.integers(0, 9))
    return data


def read(
    data: bytes | bytearray,
    wanted: OffsetRange = EVERYTHING,
    aborted: Sequence[tuple[int, int]] = (),
    *,
    with_headers: bool = False,
    skips: Skips | None = None,
) -> pa.Table:
    view = memoryview(data)
    batches = rows_of(
        list(split_batches(view)), view, aborted, wanted, with_headers=with_headers, skips=skips
    )
    return pa.Table.from_batches(batches, RAW_ROWS_WITH_HEADERS if with_headers else RAW_ROWS)


def expected(data: bytes | bytearray, start: int, end: int) -> list[dict[str, object]]:
    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": "t",
            "partition": 3,
            "offset": record.offset,
            "timestamp": min(record.timestamp * 1000, US_MAX),
            "timestampType": int(batch.is_log_append_time),
            "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
        }
        for batch in split_batches(memoryview(data))
        if batch.base_offset < end  # a batch behind the range is not looked into
        for record in records(batch)
        if start <= record.offset < end
    ]


def plain(rows: pa.Table) -> list[dict[str, object]]:
    at = rows.schema.get_field_index("timestamp")
    numbers = rows["timestamp"].cast(pa.int64())
    row_dicts: list[dict[str, object]] = rows.set_column(at, "timestamp", numbers).to_pylist()
    return row_dicts


@settings(max_examples=examples(30), deadline=None)
@given(some_batches(), st.integers(0, 40), st.integers(0, 60_000))
def test_rows_are_what_the_wires_own_decoder_reads(data: bytes, start: int, length: int) -> None:
    wanted = OffsetRange("t", 3, start, start + length)
    rows = read(data, wanted, with_headers=True)
    assert plain(rows) == expected(data, wanted.start, wanted.end)
    assert read(data, wanted) == rows.drop_columns("headers")


@settings(max_examples=examples(50), deadline=None)
@given(some_batches(), st.integers(0, 40), st.integers(1, 60_000))
def test_every_offset_has_a_row_or_a_reason(data: bytes, start: int, length: int) -> None:
    """Up to the last batch's end, whatever compaction took of batches, between them and all of them."""
    after = [batch.next_offset for batch in split_batches(memoryview(data))]
    wanted = OffsetRange("t", 3, start, max(start, min(start + length, after[-1] if after else 0)))
    skips = Skips()
    there = read(data, wanted, skips=skips)["offset"].to_pylist()
    spans = skips.within(wanted)
    gone = [offset for span in spans for offset in range(span.start, span.end)]
    assert sorted([*there, *gone]) == list(range(wanted.start, wanted.end))
    assert {span.reason for span in spans} <= {ABSENT}


def test_markers_and_aborted_records_are_told_apart() -> None:
    """A committed transaction of producer 7, an aborted one of producer 8, and a hole behind each."""
    data = of(7, 0, 2) + ends(7, 2, commit=True) + of(8, 5, 3) + ends(8, 8, commit=False)
    skips = Skips()
    rows = read(data, aborted=[(8, 5)], skips=skips)
    assert rows["offset"].to_pylist() == [0, 1]
    assert skips.within(OffsetRange("t", 3, 0, 9)) == [
        Span(2, 3, CONTROL), Span(3, 5, ABSENT), Span(5, 8, ABORTED), Span(8, 9, CONTROL)
    ]  # fmt: skip


@settings(max_examples=examples(50), deadline=None)
@given(some_batches(), st.data())
def test_bytes_that_were_changed_raise_or_read_as_the_wires_own_decoder_reads_them(
    data: bytes, draw: st.DataObject
) -> None:
    """The CRC is made right again, so that the records' own format has to hold."""
    changed = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 3)) if data else 0):
        changed[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    try:
        for batch in split_batches(memoryview(changed)):
            batch.data[17:21] = crc32c(batch.data[CRC_FROM:]).to_bytes(4, "big")
        row_dicts = plain(read(changed, with_headers=True))
    except (ArchiveError, BrokerError):
        return
    hidden = [batch.is_control for batch in split_batches(memoryview(changed))]
    if not any(hidden):
        assert [_without_names(each) for each in row_dicts] == [
            _without_names(each) for each in expected(changed, 0, 1 << 62)
        ]


def test_one_header_to_a_record_is_read_as_any() -> None:
    """A null value, an empty one, a name of two bytes; then a name that is no UTF-8."""
    pairs: list[tuple[str, bytes | None]] = [("h", None), ("é", b""), ("", b"1" * 200)]
    header_records = [
        Record(None, b"v", (pair,), timestamp=TIME_MS, offset=offset) for offset, pair in enumerate(pairs)
    ]
    data = build_batch(header_records, base_offset=0, codec=Codec.NONE, keep_offsets=True)
    assert plain(read(data, with_headers=True)) == expected(data, 0, 3)
    broken = bytearray(data.replace("é".encode(), b"\xc3\xff"))
    broken[17:21] = crc32c(broken[CRC_FROM:]).to_bytes(4, "big")
    assert read(broken, with_headers=True)["headers"].to_pylist()[1][0]["key"] == "\ufffd\ufffd"


def _without_names(row: dict[str, object]) -> dict[str, object]:
    """Names that aren't UTF-8 differ, and a time beyond int64 µs."""
    return {**row, "headers": None, "timestamp": None}


def test_groups_and_batches_of_rows_may_be_cut_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    codecs = (Codec.NONE, Codec.NONE, Codec.ZSTD, Codec.LZ4, Codec.NONE)
    data = b"".join(
        build_batch(
            [Record(None, b"%d" % n, timestamp=n) for n in range(7)], base_offset=7 * nth, codec=codec
        )
        for nth, codec in enumerate(codecs)
    )
    whole = read(data)
    assert whole["offset"].to_pylist() == list(range(35))
    monkeypatch.setattr(fetching, "GROUP_BYTES", 1)
    monkeypatch.setattr(fetching, "BATCH_ROWS", 3)
    assert read(data) == whole
    view = memoryview(data)
    batches = rows_of(list(split_batches(view)), view, (), OffsetRange("t", 3, 5, 16), with_headers=False)
    assert [batch["offset"].to_pylist() for batch in batches] == [
        [5, 6],
        [7, 8, 9],
        [10, 11, 12],
        [13],
        [14, 15],
    ]


def of(producer: int, offset: int, count: int = 1) -> bytes:
    return bytes(
        build_batch(
            [Record(None, b"p%d" % producer, timestamp=1)] * count,
            base_offset=offset,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
    )


def ends(producer: int, offset: int, *, commit: bool) -> bytes:
    return bytes(
        build_transaction_marker(
            commit=commit, producer_id=producer, producer_epoch=0, coordinator_epoch=0,
            timestamp_ms=1, base_offset=offset,
        )
    )  # fmt: skip


def test_aborted_records_and_markers_are_no_rows() -> None:
    """Two producers side by side: 1 aborts offsets 0 and 3, then commits 8; 2 commits 1 and 5, and aborts 6."""
    data = b"".join(
        [
            of(1, 0), of(2, 1), bytes(build_batch([Record(timestamp=1)], base_offset=2)), of(1, 3),
            ends(1, 4, commit=False), of(2, 5), ends(2, 6, commit=True), of(2, 7), of(1, 8),
            ends(2, 9, commit=False), ends(1, 10, commit=True),
        ]
    )  # fmt: skip
    aborted = [(2, 7), (1, 0)]
    assert read(data, aborted=aborted)["offset"].to_pylist() == [1, 2, 5, 8]
    assert read(data)["offset"].to_pylist() == [0, 1, 2, 3, 5, 7, 8]


def test_a_wrong_checksum_names_the_batch_and_rows_before_it_are_given() -> None:
    first = build_batch([Record(None, b"a", timestamp=1)] * 4)
    second = build_batch([Record(None, b"b", timestamp=1)] * 4, base_offset=4)
    second[-3] ^= 1
    view = memoryview(first + second)
    batches = rows_of(list(split_batches(view)), view, (), EVERYTHING, with_headers=False)
    assert next(batches).num_rows == 4
    with pytest.raises(ArchiveError, match=r"t-3: the batch at offset 4 is bad: .*CRC"):
        next(batches)


def forged(body: bytes, count: int, last_offset_delta: int = 0) -> bytearray:
    batch = build_batch([Record()], last_offset_delta=last_offset_delta)[:HEADER_BYTES] + body
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    batch[17:21] = crc32c(batch[CRC_FROM:]).to_bytes(4, "big")
    return batch


WHOLE = b"\x0e\0\0\0\x01\x02v\0"
"""A record: seven bytes, no key, the value v, no headers."""


def test_a_forged_batch_is_read_if_it_is_right() -> None:
    assert read(forged(WHOLE, 1))["value"].to_pylist() == [b"v"]


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (WHOLE, 0),
        (WHOLE, 2),
        (WHOLE, -1),
        (WHOLE, 1 << 30),
        (WHOLE + b"\0", 1),
        (WHOLE[:-1], 1),
        (b"", 1),
        (b"\xff" * 8, 1),
        (b"\x0f" + WHOLE[1:], 1),
        (b"\x0e\0\0\0\x01\x04v\0", 1),
        (b"\x0e\0\0\0\x01\x03v\0", 1),
        (b"\x0e\0\0\0\x01\x02v\x02", 1),
        (b"\x0e\0\0\0\x01\x02v\x01", 1),
        (b"\x0e\0\0\0\x01\0\0\0", 1),
        (b"\x0e\0\0\x02\x01\x02v\0", 1),
        (b"\x0e\0\0\x01\x01\x02v\0", 1),
        (b"\x16\0\0\0\x01\xff\xff\xff\xff\x1fv\0", 1),
        (b"\x16\0\0\0\x01\xfe\xff\xff\xff\x0fv\0", 1),
        (WHOLE + WHOLE, 2),
    ],
    ids=lambda value: value.hex() if isinstance(value, bytes) else str(value),
)
def test_records_that_break_the_format_are_told_with_their_place(body: bytes, count: int) -> None:
    good = bytes(build_batch([Record(None, b"a", timestamp=1)], base_offset=0))
    bad = forged(body, count)
    bad[0:8] = (1).to_bytes(8, "big")
    with pytest.raises(ArchiveError, match="t-3: the batch at offset 1 is bad: "):
        read(good + bytes(bad))


def test_batches_that_go_back_are_told() -> None:
    batch = bytes(build_batch([Record(timestamp=1)] * 3, base_offset=5))
    with pytest.raises(ArchiveError, match="the batch at offset 5 is bad: offsets 5 to 7 after 7"):
        read(batch + batch)
