"""The four readers' tallies of the same small archive."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from blumfeld.feeds.binance import MadeFeed, Message
from blumfeld_sink_spark.reading.producing.load import Record
from campaigns.archive.common.expected_tallies import differences, expected_of
from campaigns.archive.common.tallies import READERS
from tests.plugins.sink_spark.archive_tools import archive, rows_of

pytestmark = pytest.mark.archive


def archived(root: Path, messages: list[Message]) -> None:
    """Archives messages without Spark, in two batches. Levels of the feed's snapshot count for no reader."""
    sent = [
        Record(message.value, b"BTCUSDT", message.received_ns // 1_000_000, 0, None, "")
        for message in messages
    ]
    archive(root, rows_of(sent, "feed"), decoders=("binance-usdm",), batch_rows=len(messages) // 2)


@pytest.mark.parametrize(
    "reader", [pytest.param(name, marks=pytest.mark.spark if name == "spark" else ()) for name in READERS]
)
def test_a_reader_sums_what_the_json_says(reader: str, tmp_path: Path) -> None:
    """The tallies are exact to the last digit of a decimal, and leave out the rows of snapshots."""
    messages = MadeFeed(5).messages(300)
    archived(tmp_path, messages)
    expected = expected_of(messages)
    tallies = READERS[reader](tmp_path)
    assert differences(expected, tallies, reader) == []
    tallies["bbo"]["ask_size"] += Decimal("0.000000000000000001")
    assert len(differences(expected, tallies, reader)) == 1


def test_a_table_without_files_has_no_rows(tmp_path: Path) -> None:
    assert READERS["duckdb"](tmp_path)["trades"]["rows"] == 0
