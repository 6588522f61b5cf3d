"""Fetch, decoders and files account for every offset of a range. A count that doesn't close is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld_sink_spark import range_counts
from blumfeld_sink_spark.errors import ArchiveError, LedgerConflictError
from blumfeld_sink_spark.ledger.publishing.planned_counts import counts_of
from blumfeld_sink_spark.range_counter import Fates, RangeCounter, Skips, content_crc
from blumfeld_sink_spark.range_counts import ABSENT, CONTROL, HIDDEN, LOST, MISSING, NO_ROW
from blumfeld_sink_spark.records import DecoderCount, OffsetRange, RangeCount, Span, TaskResult
from blumfeld_sink_spark.rows import RAW_ROWS
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.spark.tasks.skips_row import followed_by_skips
from blumfeld_sink_spark.spark.tasks.task import TaskWork
from tests.everyday import examples

RANGE = OffsetRange("t", 0, 0, 100)


def rows_at(offsets: Sequence[int], values: Sequence[bytes | None] | None = None) -> pa.RecordBatch:
    count = len(offsets)
    columns = {
        "key": [None if offset % 3 else b"k%d" % offset for offset in offsets],
        "value": list(values) if values is not None else [b"v%d" % offset for offset in offsets],
        "topic": ["t"] * count,
        "partition": [0] * count,
        "offset": list(offsets),
        "timestamp": [1_723_161_256_000_000 + 1000 * offset for offset in offsets],
        "timestampType": [0] * count,
    }
    return pa.RecordBatch.from_pydict(columns, schema=RAW_ROWS)


def counted(batches: Sequence[pa.RecordBatch], rowless: frozenset[int] = frozenset()) -> RangeCounter:
    counter = RangeCounter("t", 0)
    for batch in batches:
        there = np.array([offset not in rowless for offset in batch["offset"].to_pylist()], np.bool_)
        read = int(there.sum())
        kinds = Counter({"kline": len(there) - read}) if read < len(there) else Counter()
        counter.add(batch, there, {"trades": read}, {"d": Fates(read, 0, kinds)})
    return counter


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sets(st.integers(0, 99)),
    st.sets(st.integers(0, 99)),
    st.lists(st.integers(0, 99), max_size=4),
    st.booleans(),
)
def test_all_offsets_are_counted_however_batches_are_cut(
    there: set[int], rowless: set[int], cuts: list[int], with_skips: bool
) -> None:
    offsets = sorted(there)
    pieces = np.split(np.array(offsets, np.int64), sorted(min(cut, len(offsets)) for cut in cuts))
    skips = Skips()
    for offset in set(range(100)) - there:
        skips.add(ABSENT, offset, offset + 1)
    given_ = (RANGE, skips) if with_skips else (RANGE, None)
    whole = counted([rows_at(offsets)], frozenset(rowless)).count(*given_)
    assert counted([rows_at(piece.tolist()) for piece in pieces], frozenset(rowless)).count(*given_) == whole
    assert list(range_counts.wrong(whole)) == []
    named = {offset: span.reason for span in whole.spans for offset in range(span.start, span.end)}
    reason = ABSENT if with_skips else HIDDEN
    assert named == {
        **dict.fromkeys(there & rowless, NO_ROW), **dict.fromkeys(set(range(100)) - there, reason)
    }  # fmt: skip


def test_what_the_fetch_gave_and_no_decoder_saw_is_missing() -> None:
    skips = Skips([Span(50, 51, CONTROL)])
    count = counted([rows_at([*range(10), 95, 96, 97, 98])]).count(RANGE, skips)
    assert count.skipped == {CONTROL: 1, MISSING: 85}
    assert list(range_counts.wrong(count)) == [
        "t-0 0..100: 85 of its 100 offsets gave no message and the fetch has no reason for it: 10..50, 51..95, 99..100"
    ]


def test_a_reason_for_an_offset_that_was_decoded_is_a_bug() -> None:
    with pytest.raises(ArchiveError, match="10 messages were decoded and 91 offsets skipped"):
        counted([rows_at(range(10))]).count(RANGE, Skips([Span(9, 100, ABSENT)]))


@pytest.mark.parametrize("pieces", [[[0, 1, 1]], [[0, 1], [1, 2]], [[5], [4]]])
def test_a_message_that_comes_twice_or_late_is_refused(pieces: list[list[int]]) -> None:
    with pytest.raises(ArchiveError, match=r"t-0: offset \d came after \d"):
        counted([rows_at(piece) for piece in pieces])


def test_many_stretches_are_counted_and_not_all_named() -> None:
    """A commit record stays small."""
    count = counted([rows_at(range(0, 10_000, 2))]).count(OffsetRange("t", 0, 0, 10_000))
    assert len(count.spans) == range_counts.SPANS_MAX
    assert (count.skipped, count.unnamed) == ({HIDDEN: 5000}, 5000 - range_counts.SPANS_MAX)
    assert list(range_counts.wrong(count)) == []


def test_kinds_beyond_the_most_are_counted_together() -> None:
    counter = RangeCounter("t", 0)
    kinds = Counter({f"kind {nth}": 1 for nth in range(100)})
    counter.add(rows_at(range(100)), np.zeros(100, np.bool_), {}, {"d": Fates(0, 0, kinds)})
    passed_over = counter.count(RANGE, Skips()).decoders["d"].passed_over
    assert (len(passed_over), passed_over[range_counts.OTHER]) == (65, 36)


def test_the_content_s_crc_sees_what_was_changed_or_moved() -> None:
    values: list[bytes | None] = [b"a", None, b"bc", b""]
    whole = rows_at(range(4), values)
    crc = content_crc(whole)
    assert content_crc(whole.slice(2), content_crc(whole.slice(0, 2))) == crc
    others: list[list[bytes | None]] = [
        [b"a", b"", b"bc", b""],
        [b"a", None, b"b", b"c"],
        [b"a", None, b"bd", b""],
    ]
    assert len({crc, *(content_crc(rows_at(range(4), each)) for each in others)}) == 4
    assert content_crc(rows_at([0, 1, 2, 4], values)) != crc


def test_a_range_of_which_the_reader_says_nothing_is_hidden() -> None:
    """Spark's connector gives messages alone: the offsets before, between and behind them may be anything."""
    count = range_counts.over(counted([rows_at([10, 11, 20])]).count(), RANGE)
    assert count.skipped == {HIDDEN: 97}
    assert [(span.start, span.end) for span in count.spans] == [(0, 10), (12, 20), (21, 100)]
    assert range_counts.unread(RANGE).skipped == {HIDDEN: 100}
    lost = [OffsetRange("t", 0, 0, 7), OffsetRange("t", 1, 7, 9)]
    assert range_counts.over(counted([rows_at([10, 11, 20])]).count(), RANGE, lost).skipped == {
        HIDDEN: 90,
        LOST: 7,
    }
    assert list(range_counts.wrong(count)) == []


CLOSED = RangeCount(
    topic="t", partition=0, start=0, end=10, messages=8, with_rows=7, skipped={CONTROL: 2}, rows={"trades": 9},
    decoders={"d": DecoderCount(read=6, quarantined=1, passed_over={"kline": 1})},
    spans=(Span(0, 2, CONTROL), Span(5, 6, NO_ROW)),
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"messages": 7}, "10 offsets, but 7 messages and 2 skipped: 1 not accounted for"),
        ({"skipped": {CONTROL: 3}}, "10 offsets, but 8 messages and 3 skipped: 1 twice accounted for"),
        (
            {"decoders": {"d": DecoderCount(read=6, quarantined=1)}},
            "8 messages, but d read 6, quarantined 1 and passed 0 over",
        ),
        ({"with_rows": 8}, "2 offsets have no row, but 3 are named and 0 counted"),
        ({"unnamed": 1}, "3 offsets have no row, but 3 are named and 1 counted"),
    ],
)
def test_each_sum_that_does_not_close_is_named(change: dict[str, object], wanted: str) -> None:
    assert list(range_counts.wrong(CLOSED)) == []
    assert any(wanted in each for each in range_counts.wrong(msgspec.structs.replace(CLOSED, **change)))


def binance(offset: int) -> bytes:
    return (
        b'{"e":"trade","E":1723161256322,"T":1723161256322,"s":"BTCUSDT","t":%d,"p":"61800.1","q":"0.1","X":"MARKET",'
        b'"m":true}' % offset
    )


VALUES: dict[int, bytes | None] = {
    10: b'{"e":"markPriceUpdate","s":"BTCUSDT","p":"1"}',
    11: b'{"e":"markPriceUpdate","s":"BTCUSDT","p":"2"}',
    20: b'{"stream":"btcusdt@forceOrder","data":{"e":"forceOrder","o":{}}}',
    30: b'{"e":"kline","k":{}}',
    40: b'{"result":null,"id":1}',
    50: None,
    60: b'{"e":"depthUpdate","E":1,"T":1,"s":"BTCUSDT","U":1,"u":2,"pu":0,"b":[],"a":[]}',
    70: b"nothing at all",
}


def test_messages_that_reach_no_table_are_counted_by_kind(tmp_path: Path) -> None:
    [result] = _worked(tmp_path, [_feed()], RANGE)
    decoder_counts = result.count.decoders["binance-usdm"]
    assert decoder_counts.passed_over == {
        "depthUpdate without a row": 1, "forceOrder": 1, "kline": 1, "markPriceUpdate": 2, "null value": 1, "result": 1,
    }  # fmt: skip
    assert (decoder_counts.read, decoder_counts.quarantined, result.count.with_rows) == (92, 1, 93)
    assert result.count.rows == {"quarantine": 1, "trades": 92}
    assert list(range_counts.wrong(result.count)) == []
    assert [span.start for span in result.count.spans] == [10, 20, 30, 40, 50, 60]


def test_with_raw_beside_it_every_message_has_a_row_and_is_still_counted(tmp_path: Path) -> None:
    [result] = _worked(tmp_path, [_feed()], RANGE, decoders=("binance-usdm", "raw"))
    assert result.count.with_rows == 100
    assert result.count.spans == ()
    assert result.count.decoders["raw"] == DecoderCount(read=100, quarantined=0)
    assert result.count.decoders["binance-usdm"].passed_over["markPriceUpdate"] == 2


def test_the_account_of_a_fetch_goes_to_the_sink_as_a_row(tmp_path: Path) -> None:
    """Decodes as the reader ``python`` does, with Spark between fetch and decoders."""
    skips = Skips([Span(90, 100, CONTROL)])
    feed = _feed().slice(0, 90)
    batches = list(followed_by_skips(iter([feed]), RANGE, skips, with_headers=False))
    [result] = _worked(tmp_path, [pa.Table.from_batches(batches).combine_chunks().to_batches()[0]])
    assert (result.count.start, result.count.end, result.count.skipped) == (0, 100, {CONTROL: 10})
    only = followed_by_skips(iter([]), RANGE, Skips([Span(0, 100, ABSENT)]), with_headers=False)
    [nothing] = _worked(tmp_path, list(only))
    assert (nothing.messages, nothing.count.skipped) == (0, {ABSENT: 100})


@pytest.mark.parametrize("reader", ["direct", "python"])
def test_a_task_that_lost_messages_is_not_published(tmp_path: Path, reader: str) -> None:
    results = _worked(tmp_path, [_feed().slice(0, 15)], RANGE)
    with pytest.raises(
        LedgerConflictError, match=r"t-0 0\.\.100: 85 of its 100 offsets .* 15\.\.100\. Nothing"
    ):
        counts_of([RANGE], (), results, reader)


def test_a_writer_that_lost_rows_is_not_published(tmp_path: Path) -> None:
    [result] = _worked(tmp_path, [_feed()], RANGE)
    files = [
        msgspec.structs.replace(file, rows=file.rows - (file.table == "trades")) for file in result.files
    ]
    with pytest.raises(
        LedgerConflictError, match="t-0: 92 rows of trades were decoded, and 91 are in its files"
    ):
        counts_of([RANGE], (), [msgspec.structs.replace(result, files=tuple(files))], "direct")


def test_a_range_without_a_task_is_published_only_for_a_reader_that_cannot_tell(tmp_path: Path) -> None:
    with pytest.raises(LedgerConflictError, match=r"planned was t-0 0\.\.100, and its task counted nothing"):
        counts_of([RANGE], (), [], "direct")
    assert counts_of([RANGE], (), [], "jvm") == (range_counts.unread(RANGE),)
    [result] = _worked(tmp_path, [_feed()], RANGE)
    with pytest.raises(LedgerConflictError, match=r"two tasks read t-0 0\.\.100"):
        counts_of([RANGE], (), [result, result], "direct")


def _feed() -> pa.RecordBatch:
    return rows_at(range(100), [VALUES.get(offset, binance(offset)) for offset in range(100)])


def _worked(
    root: Path,
    batches: Sequence[pa.RecordBatch],
    wanted: OffsetRange | None = None,
    decoders: tuple[str, ...] = ("binance-usdm",),
) -> list[TaskResult]:
    work = TaskWork(ArchiveSettings(root=str(root), decoders=decoders, topics=("t",)))
    for batch in batches:
        work.add(batch)
    if wanted is not None:
        work.tell(wanted, Skips())
    return [msgspec.json.decode(msgspec.json.encode(result), type=TaskResult) for result in work.finish()]
