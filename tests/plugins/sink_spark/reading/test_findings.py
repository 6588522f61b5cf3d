"""The faults of a feed, read back from its archive."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest

from blumfeld_sink_spark.reading.producing.captures import messages
from tests.plugins.sink_spark.archive_tools import archive, captured, write_capture
from tests.plugins.sink_spark.command import rows_said, run
from tests.plugins.sink_spark.results import changed

pytestmark = pytest.mark.archive


def archived(folder: Path, order: list[int]) -> Path:
    """Archives a made-up feed's messages in this order, in batches of 37."""
    feed = list(messages(write_capture(folder / "feed")))
    lines = [f"{message.received_ns} {message.value.decode()}\n" for message in feed]
    (folder / "planted").write_text("".join(lines[at] if at >= 0 else lines[at + len(feed)] for at in order))
    rows = captured([folder / "planted"], "feed")
    archive(folder / "archive", rows, batch_rows=37, decoders=("binance-usdm",))
    return folder / "archive"


def test_a_whole_feed_has_none(tmp_path: Path) -> None:
    root = archived(tmp_path, list(range(161)))
    done = run("gaps", root, "--fail")
    assert (done.exit_code, "no gaps" in done.output) == (0, True)


def test_an_archive_of_whole_messages_alone_is_not_called_free_of_gaps(tmp_path: Path) -> None:
    rows = captured([write_capture(tmp_path / "feed", 2)], "feed")
    archive(tmp_path / "archive", rows, decoders=("raw",))
    assert run("gaps", tmp_path / "archive").output.startswith("nothing is checked: ")


def test_planted_faults_are_named(tmp_path: Path) -> None:
    # the feed: bbo bbo (snapshot) depth trade | bbo bbo depth trade | …, a second each
    order = list(range(161))
    order.remove(8)  # the trade of the second 1
    order.insert(order.index(15), 15)  # the depth of the second 3, twice
    at = order.index(101)
    order[at], order[at + 1] = order[at + 1], order[at]  # both quotes of a second after midnight
    root = archived(tmp_path, order)
    rows = rows_said("gaps", root)
    trade, depth, quote = (order.index(12), order.index(15) + 1, at + 1)
    assert [(row["stream"], row["kind"], row["k_offset"]) for row in rows] == [
        ("trade", "gap", trade),
        ("depth", "duplicate", depth),
        ("bookTicker", "out_of_order", quote),
    ]
    assert (rows[0]["expected"], rows[0]["got"], rows[0]["missing"]) == (2, 3, 1)
    output = run("gaps", root).output
    assert [word in output for word in ("2024-08-08", "2024-08-09", "feed-0", "out_of_order")] == [True] * 4
    assert "1 gap, 0 of them closed by messages that came late; 1 numbered message is still missing" in output
    only = run("gaps", root, "--kind", "gap", "--symbol", "BTCUSDT", "--json", "--fail")
    assert (only.exit_code, len(only.output.splitlines())) == (1, 1)
    assert len(run("gaps", root, "--from", "2024-08-09", "--json").output.splitlines()) == 1
    assert len(run("gaps", root, "--to", "2024-08-09", "--json").output.splitlines()) == 2
    assert run("gaps", root, "--kind", "reset", "--json").output == ""
    assert "1 of 3 rows" in run("gaps", root, "--limit", "1").output
    assert "feed-0" not in run("gaps", root, "--limit", "0").output


def test_a_swap_leaves_no_gap_open(tmp_path: Path) -> None:
    order = list(range(161))
    order[8], order[12] = order[12], order[8]
    output = run("gaps", archived(tmp_path, order)).output
    assert (
        "1 gap, 1 of them closed by messages that came late; 0 numbered messages are still missing" in output
    )
    assert "gap_end" in output


def test_a_message_that_could_not_be_read_is_told_and_is_not_the_venues_loss(tmp_path: Path) -> None:
    """A trade without a price goes to quarantine. Its id is missing, and the finding says where to look; ``raw`` reads
    everything and reads nothing.
    """
    rows = captured([write_capture(tmp_path / "feed")], "feed")
    values = rows["value"].to_pylist()
    values[12] = values[12].replace(b'"p":"', b'"p":"x')
    rows = changed(rows, value=values)
    archive(tmp_path / "archive", rows, batch_rows=37, decoders=("binance-usdm", "raw"))
    root = str(tmp_path / "archive")
    gap_rows = rows_said("gaps", root)
    assert [(row["stream"], row["kind"], row["k_offset"], row["missing"]) for row in gap_rows] == [
        ("trade", "unread", 16, 1),
    ]
    result = run("gaps", root, "--fail")
    assert (
        "1 gap, 0 of them closed by messages that came late; 1 numbered message is still missing"
        in result.output
    )
    assert (result.exit_code, QUARANTINED.format(1) in result.output) == (1, True)


def test_messages_that_no_decoder_reads_are_no_fault_of_the_feed(tmp_path: Path) -> None:
    """A topic with a channel that the decoder rejects would fail a check of the feed for ever. The command says where
    they are.
    """
    rows = captured([write_capture(tmp_path / "feed")], "feed")
    values = [
        sent_value
        for at, value in enumerate(rows["value"].to_pylist())
        for sent_value in ([value, b'{"channel":"l3"}'] if at % 3 else [value])
    ]
    unread = values.count(b'{"channel":"l3"}')
    rows = pa.table(
        {
            **{name: pa.repeat(rows[name][0], len(values)) for name in rows.column_names},
            "value": pa.array(values, pa.binary()),
            "offset": pa.array(range(len(values)), pa.int64()),
        },
        schema=rows.schema,
    )
    archive(tmp_path / "archive", rows, batch_rows=37, decoders=("binance-usdm",), skew_ms=0)
    done = run("gaps", tmp_path / "archive", "--fail")
    assert done.output.splitlines() == [
        "no gaps: every message that the venues number is there once, in order",
        QUARANTINED.format(unread),
    ]
    assert done.exit_code == 0


QUARANTINED = (
    "messages that a decoder could not read: {}; "
    "SELECT decoder, error, count(*) FROM quarantine GROUP BY ALL shows why (archive sql)"
)


def test_a_trade_that_a_venue_sends_again_is_told_and_fails_no_check(tmp_path: Path) -> None:
    """Each subscription begins with the last trade, however old. A check for that kind alone fails."""
    rows = captured([write_capture(tmp_path / "feed")], "feed")
    values = rows["value"].to_pylist()
    first = next(at for at, value in enumerate(values) if b'"e":"trade"' in value)
    values[first] = re.sub(rb'"T":\d+', b'"T":1723000000000', values[first])
    rows = changed(rows, value=values)
    archive(tmp_path / "archive", rows, batch_rows=37, decoders=("binance-usdm",))
    root = str(tmp_path / "archive")
    gap_rows = rows_said("gaps", root)
    assert [(row["stream"], row["kind"], row["k_offset"]) for row in gap_rows] == [("trades", "stale", first)]
    assert run("gaps", root, "--fail").exit_code == 0
    assert run("gaps", root, "--kind", "stale", "--fail").exit_code == 1


def test_a_header_that_holds_no_time_is_told(tmp_path: Path) -> None:
    """Its messages have Kafka's milliseconds, which nobody would see in the rows."""
    rows = captured([write_capture(tmp_path / "feed")], "feed", recv_header="recv_ns")
    pairs = rows["headers"].to_pylist()
    for at in range(40, 60):
        pairs[at] = [{"key": "recv_ns", "value": b"abc"}]
    rows = changed(rows, headers=pairs)
    archive(tmp_path / "archive", rows, batch_rows=37, decoders=("binance-usdm",))
    output = run("gaps", tmp_path / "archive", "--json").output
    gap_rows = [(row["stream"], row["kind"], row["k_offset"]) for row in map(json.loads, output.splitlines())]
    assert gap_rows == [("offsets", "bad_recv", 40), ("offsets", "bad_recv_end", 60)]
