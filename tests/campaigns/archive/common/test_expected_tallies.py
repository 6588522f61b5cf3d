"""The expected contents of a feed's tables."""

from __future__ import annotations

import json
import tomllib
from decimal import Decimal
from pathlib import Path

import pytest

from blumfeld.feeds.binance import MadeFeed, Message
from campaigns.archive.common import ledger
from campaigns.archive.common.capture import read_capture
from campaigns.archive.common.expected_tallies import added, differences, expected_of
from campaigns.archive.common.process import Archive
from campaigns.archive.common.report import Report
from campaigns.archive.golden import GOLDEN
from tests.shared_facts import shared_path

pytestmark = pytest.mark.archive

TRADE = b'{"stream":"x@trade","data":{"e":"trade","E":8,"T":7,"s":"X","t":5,"p":"1.10","q":"0.3","m":true}}'
DIFF = b'{"data":{"e":"depthUpdate","T":9,"s":"X","U":2,"u":4,"pu":1,"b":[["1.0","2"]],"a":[["1.2","0"]]}}'
BEST = b'{"data":{"u":4,"s":"X","b":"1.0","B":"2","a":"1.1","A":"3"}}'
REST = b'{"lastUpdateId":4,"E":1,"T":1,"bids":[["1.0","2"]],"asks":[]}'


def test_each_kind_of_message_counts_in_its_table_and_a_snapshot_in_none() -> None:
    tallies = expected_of([Message(0, value) for value in (TRADE, DIFF, BEST, REST)], first_offset=10)
    assert {table: int(tally["rows"]) for table, tally in tallies.items()} == {
        "trades": 1,
        "bbo": 1,
        "book_deltas": 2,
    }
    assert tallies["trades"]["price"] == Decimal("1.10")
    assert tallies["trades"]["side"] == -1
    assert tallies["trades"]["ts_event_ms"] == 7
    assert tallies["book_deltas"]["k_offset"] == 22
    assert tallies["book_deltas"]["side"] == 0
    assert "ts_event_ms" not in tallies["bbo"], "the exchange says no time: nothing is expected of it"


def test_sums_of_parts_are_the_sums_of_the_whole() -> None:
    messages = MadeFeed(1).messages(200)
    parts = [expected_of(messages[:90]), expected_of(messages[90:], 90)]
    assert added(parts) == expected_of(messages)


def test_a_column_that_differs_is_named_with_both_numbers() -> None:
    expected = expected_of([Message(0, TRADE)])
    tallies = expected_of([Message(0, TRADE), Message(0, TRADE)])
    assert "who: trades.rows is 2, expected 1" in differences(expected, tallies, "who")


def test_the_real_capture_has_the_golden_counts() -> None:
    messages = read_capture(shared_path("market-data/hftbacktest/usdm/btcusdt_20240808.gz"))
    assert {table: tally["rows"] for table, tally in expected_of(messages).items()} == GOLDEN


def test_holes_overlaps_and_missing_ends_of_a_ledger_are_told(tmp_path: Path) -> None:
    folder = tmp_path / "_commits" / "q"
    folder.mkdir(parents=True)
    for batch, (start, end) in enumerate([(0, 5), (5, 9), (8, 12), (13, 14)]):
        commit = {"ranges": [{"topic": "t", "partition": 0, "start": start, "end": end}]}
        (folder / f"{batch:010d}.json").write_text(json.dumps(commit))
    (folder / "checkpoint.json").write_text("{}")  # no commit
    assert ledger.incomplete(tmp_path, {("t", 0): 20, ("t", 1): 0}) == [
        "t-0: a commit begins at 8, the one before ends at 9",
        "t-0: a commit begins at 13, the one before ends at 12",
        "t-0: commits reach 14, the partition 20",
    ]


def test_an_archive_writes_its_settings_as_toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Archive(tmp_path, "h:1", ["a", "b"], headers=True, spark={"spark.x.y": "1"})
    monkeypatch.setattr(Archive, "_launch", lambda *_: None)
    archive.start("once", max_offsets_per_trigger=7)
    (config,) = tmp_path.glob("*-once.toml")
    section = tomllib.loads(config.read_text())["archive"]
    assert section["topics"] == ["a", "b"]
    assert section["headers"] is True
    assert section["spark"] == {"spark.x.y": "1"}
    assert section["max_offsets_per_trigger"] == 7


def test_a_report_without_checks_or_with_a_wrong_one_is_not_good() -> None:
    report = Report("r")
    assert not report.good
    report.add("a", 1)
    assert report.good
    report.add("b", 2, ["expected 3"])
    assert not report.good
