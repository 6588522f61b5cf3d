"""Fingerprints: they ignore the order and the cut into batches, and nothing else."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from blumfeld_sink_spark.compaction import fingerprint
from blumfeld_sink_spark.compaction.fingerprint import Fingerprint
from tests.plugins.sink_spark.files import tools
from tests.plugins.sink_spark.results import changed


def of(*parts: pa.Table) -> Fingerprint:
    whole_fingerprint = Fingerprint()
    for part in parts:
        whole_fingerprint.add(part)
    return whole_fingerprint


@pytest.mark.parametrize("rows", [tools.trades(500), tools.raw(500)], ids=["trades", "raw"])
def test_order_and_batches_do_not_matter(rows: pa.Table) -> None:
    places = list(range(500))
    random.Random(3).shuffle(places)
    mixed = rows.take(places)
    assert of(mixed.slice(0, 123), mixed.slice(123)) == of(rows)


TRADES, RAW = tools.trades(50), tools.raw(50)
CHANGES: list[tuple[pa.Table, str, Any]] = [
    (TRADES, "ts_event", lambda values: [values[1], values[0], *values[2:]]),
    (TRADES, "price", lambda values: [values[0] + Decimal("1E-18"), *values[1:]]),
    (TRADES, "price", lambda values: [values[1], values[0], *values[2:]]),
    (TRADES, "venue", lambda values: ["binancf", *values[1:]]),
    (TRADES, "symbol", lambda values: ["UBTCSDT", *values[1:]]),
    (TRADES, "trade_id", lambda values: [None, *values[1:]]),
    (TRADES, "trade_id", lambda values: [values[0], values[6], *values[2:6], values[1], *values[7:]]),
    (RAW, "value", lambda values: [values[1], values[0], *values[2:]]),
    (RAW, "value", lambda values: [values[0][1:], values[1] + values[0][:1], *values[2:]]),
    (RAW, "value", lambda values: [values[0][::-1], *values[1:]]),
    (RAW, "key", lambda values: [None, *values[1:]]),
    (RAW, "headers", lambda values: [None, *values[1:]]),
    (RAW, "headers", lambda values: [values[0][::-1], *values[1:]]),
]


@pytest.mark.parametrize(("rows", "column", "change"), CHANGES)
def test_a_changed_value_is_seen_and_named(rows: pa.Table, column: str, change: Any) -> None:
    other = changed(rows, **{column: change(rows[column].to_pylist())})
    assert of(other) != of(rows)
    assert of(rows).difference(of(other)) == f"values changed in {column}"


def test_a_row_twice_is_two_rows() -> None:
    rows = tools.trades(10)
    assert of(rows).difference(of(rows, rows.slice(0, 1))) == "10 rows became 11"


def test_texts_larger_than_what_is_taken_at_once_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tools.raw(40, value_bytes=300)
    whole = of(rows)
    monkeypatch.setattr(fingerprint, "_BYTES_AT_ONCE", 100)
    assert of(rows) == whole
