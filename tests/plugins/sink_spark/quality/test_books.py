"""Books that differ from the checksums that their venue sends are told, the same wherever batches are cut."""

from __future__ import annotations

import itertools
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any
from zlib import crc32

import attrs
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld_sink_spark.decoders import catalog
from blumfeld_sink_spark.quality import stitch
from blumfeld_sink_spark.quality.books import COLUMNS
from blumfeld_sink_spark.reading.producing.load import Record
from blumfeld_sink_spark.records import TaskResult
from blumfeld_sink_spark.testing.decoder_messages import batch
from tests.everyday import examples
from tests.plugins.sink_spark.archive_tools import archive, rows_of
from tests.plugins.sink_spark.book.test_checksums import less_deep
from tests.plugins.sink_spark.command import rows_said
from tests.plugins.sink_spark.feeds import result_of
from tests.shared_facts import shared_path

Rows = list[dict[str, Any]]
DEPTH = 10


@attrs.define
class Exchange:
    """A made-up Kraken of one pair: prices of one decimal place, sizes of eight."""

    levels: dict[str, dict[int, int]] = attrs.field(factory=lambda: {"a": {}, "b": {}})
    sent: list[bytes] = attrs.field(factory=list)

    def snapshot(self) -> None:
        """Begins a subscription: v1's snapshots have no checksum."""
        parts = {f"{side}s": [self._level(*level) for level in self._best(side)] for side in "ab"}
        self.sent.append(json.dumps([1, parts, f"book-{DEPTH}", "A/B"], separators=(",", ":")).encode())

    def change(self, side: str, price: int, size: int) -> None:
        """Sends what a client of ten levels gets of a change; nothing where it sees none."""
        before = self._best(side)
        self.levels[side].pop(price, None)
        if size:
            self.levels[side][price] = size
        after = self._best(side)
        gone = [(old, 0) for old, _ in before if old not in self.levels[side]]
        changed = [self._level(*level) for level in gone + [level for level in after if level not in before]]
        if changed:
            part = {side: changed, "c": str(self._checksum())}
            self.sent.append(json.dumps([1, part, f"book-{DEPTH}", "A/B"], separators=(",", ":")).encode())

    def _best(self, side: str) -> list[tuple[int, int]]:
        return sorted(self.levels[side].items(), reverse=side == "b")[:DEPTH]

    def _level(self, price: int, size: int) -> list[str]:
        return [f"{Decimal(price) / 10:.1f}", f"{Decimal(size) / 10**8:.8f}", f"{len(self.sent) + 1}.000000"]

    def _checksum(self) -> int:
        return crc32("".join(f"{price}{size}" for side in "ab" for price, size in self._best(side)).encode())


def exchange(changes: list[tuple[str, int, int]]) -> Exchange:
    made = Exchange()
    for nth in range(1, 15):
        made.levels["a"][1000 + nth] = made.levels["b"][1000 - nth] = nth * 10**7
    made.snapshot()
    for side, price, size in changes:
        made.change(side, 1000 + price if side == "a" else 1000 - price, size)
    return made


def told(messages: list[bytes], cuts: list[int] | None = None) -> tuple[dict[str, Any], Rows]:
    """State and gaps of a feed from offset 0, a batch between each two cuts, the state through JSON each time."""
    state: dict[str, Any] = {}
    rows: Rows = []
    table = catalog.find("kraken").decode(batch(messages)).tables["book_deltas"]
    for name in set(COLUMNS) - set(table.column_names) - {"k_offset"}:
        table = table.append_column(name, pa.nulls(table.num_rows, pa.int64()))
    table = table.append_column("k_offset", table.column("row").cast(pa.int64())).select(list(COLUMNS))
    for start, end in itertools.pairwise([0, *sorted(cuts or []), len(messages)]):
        offsets = table.column("k_offset").to_pylist()
        part = (
            table.slice(offsets.index(start), sum(start <= at < end for at in offsets))
            if start < end
            else None
        )

        def books(result: TaskResult, part: pa.Table | None = part) -> Any:
            return [("kraken", "A/B", [part])] if part is not None else []

        state, gaps = stitch(json.loads(json.dumps(state)), [result_of([], start)], (), books)
        rows += gaps.to_pylist()
    return state, rows


CHANGES = st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 16), st.integers(0, 3)), max_size=30)
STEADY = [("a", 1 + nth % 9, nth % 4) for nth in range(60)] + [
    ("b", 1 + nth % 12, nth % 5) for nth in range(60)
]


@settings(deadline=None, max_examples=examples(25))
@given(CHANGES, st.data())
def test_a_whole_feed_is_never_told(changes: list[tuple[str, int, int]], data: st.DataObject) -> None:
    """Levels are pushed out and come back; the decimal places are found."""
    sent = exchange(changes).sent
    cuts = data.draw(st.lists(st.integers(0, len(sent) - 1), max_size=4))
    whole = told(sent)
    assert whole[1] == []
    assert told(sent, cuts) == whole


@settings(deadline=None, max_examples=examples(20))
@given(st.integers(1, 60), st.lists(st.integers(0, 70), max_size=4))
def test_a_missing_message_is_told_the_same_wherever_batches_are_cut(missing: int, cuts: list[int]) -> None:
    sent = exchange(STEADY).sent
    del sent[missing]
    whole = told(sent)
    assert told(sent, cuts) == whole
    kinds = [row["kind"] for row in whole[1]]
    assert kinds[:2] in (["checksum"], ["checksum", "checksum_end"])
    assert {row["k_offset"] for row in whole[1][:1]} == {missing}


def test_a_finding_names_both_checksums_and_the_book() -> None:
    sent = exchange(STEADY).sent
    del sent[20]
    row = told(sent)[1][0]
    assert (row["stream"], row["venue"], row["symbol"]) == ("book_deltas", "kraken", "A/B")
    assert (row["k_offset"], row["offset_before"]) == (20, 19)
    assert row["expected"] == int(json.loads(sent[20])[1]["c"]) != row["got"]


def test_a_book_that_fits_no_decimal_places_is_told_once() -> None:
    """A venue may change its formula. Places aren't tried at every message."""
    state, rows = told([re.sub(rb'"c":"[0-9]+"', b'"c":"7"', value) for value in exchange(STEADY).sent])
    assert [row["kind"] for row in rows] == ["checksum"]
    assert len(json.dumps(state)) < 2000


def test_a_book_is_in_the_state_if_it_is_not_too_deep() -> None:
    sent = exchange(STEADY).sent
    assert list(told(sent)[0]["books"]) == ['["feed","0","kraken","A/B"]']
    deep = [value.replace(b"book-10", b"book-500") for value in sent[:1]]
    assert told(deep)[0]["books"] == {}


@pytest.mark.archive
def test_a_book_that_cannot_be_right_is_in_the_gaps_of_its_archive(tmp_path: Path) -> None:
    """Kraken's real feed at a depth of ten: whole, and without one message. ``archive book`` says it too."""
    captured = [value for _, value in less_deep(shared_path("market-data/cryptofeed/KRAKEN.ws.50.0"), 10, {})]
    missing = [at for at, value in enumerate(captured) if b'"ETH/CHF"' in value][30]
    holed = captured[:missing] + captured[missing + 1 :]

    def archived(values: list[bytes]) -> tuple[str, list[tuple[int, str, str]]]:
        sent = [Record(value, None, 1_618_678_132_000 + at, -1, None, "") for at, value in enumerate(values)]
        root = str(tmp_path / str(len(values)))
        archive(root, rows_of(sent, "kraken"), decoders=("kraken",), batch_rows=700, skew_ms=0)
        return root, sorted((row["k_offset"], row["symbol"], row["kind"]) for row in rows_said("gaps", root))

    whole, gaps = archived(captured)
    assert gaps == []
    _, ((begin, *first), (end, *last)) = archived(holed)
    assert (first, last) == (["ETH/CHF", "checksum"], ["ETH/CHF", "checksum_end"])
    assert missing <= begin < end
    wrong, _ = archived(holed[:end])
    shown = ("--symbol", "ETH/CHF", "--at", "2021-04-18")
    assert [rows_said("book", root, *shown)[0]["checksum"] for root in (whole, wrong)] == [True, False]
