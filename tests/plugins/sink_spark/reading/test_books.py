"""The book at a time, and its periodic snapshots, from an archive's files."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.reading.committed_files import Committed
from blumfeld_sink_spark.reading.market import books, deltas, snapshots
from blumfeld_sink_spark.reading.producing.captures import messages
from tests.plugins.sink_spark.archive_tools import MIDNIGHT_S, archive, captured, write_capture
from tests.plugins.sink_spark.command import refused, rows_said, said
from tests.plugins.sink_spark.results import changed

pytestmark = pytest.mark.archive

SECOND = 10**9
MIDNIGHT = MIDNIGHT_S * SECOND
FIRST = MIDNIGHT - 20 * SECOND
"""Time of the feed's snapshot. The change of each second comes 140 ms after the second."""


@pytest.fixture
def root(small_archive: Path) -> Path:
    return small_archive


def slow(folder: Path, upto_ns: int) -> tuple[dict[Decimal, Decimal], dict[Decimal, Decimal]]:
    sides: dict[str, dict[Decimal, Decimal]] = {"b": {}, "a": {}}
    for message in messages(folder / "feed.gz"):
        data = json.loads(message.value)
        body = data.get("data", data)
        if body["T"] * 10**6 > upto_ns:
            break
        if "lastUpdateId" in body:
            sides = {"b": {}, "a": {}}
            body = {"b": body["bids"], "a": body["asks"]}
        if "B" in body or "p" in body:
            continue
        for name in ("b", "a"):
            for price, size in body[name]:
                sides[name][Decimal(price)] = Decimal(size)
    bids, asks = ({price: size for price, size in sides[name].items() if size} for name in ("b", "a"))
    return bids, asks


def levels(standing: books.Standing) -> tuple[dict[Decimal, Decimal], dict[Decimal, Decimal]]:
    bids, asks = (
        {row["price"]: row["size"] for row in standing.ladder.side(side).to_pylist()} for side in (1, -1)
    )
    return bids, asks


@pytest.mark.parametrize(
    "at", [FIRST, FIRST + 140_000_000, FIRST + 7 * SECOND, MIDNIGHT, MIDNIGHT + 99 * SECOND]
)
def test_the_book_at_a_time_is_that_of_a_slow_reader(root: Path, at: int) -> None:
    opened_archive = Committed.open(str(root))
    standing = books.at(opened_archive, deltas.find(opened_archive, "BTCUSDT"), at)
    assert levels(standing) == slow(root.parent, at)
    assert (standing.sync.breaks, standing.venue) == (0, "binance-usdm")
    assert standing.ts_event <= at


def test_the_ladder_is_shown(root: Path) -> None:
    ladder = said("book", root, "--symbol", "BTCUSDT", "--at", "2024-08-09T00:00:05", "--depth", "3")
    assert "from the snapshot at offset 2" in ladder
    assert ladder.count(" ask ") == ladder.count(" bid ") == 3
    assert "don't follow" not in ladder
    [shown_ladder] = rows_said("book", root, "--symbol", "BTCUSDT", "--at", str(MIDNIGHT))
    best = max(slow(root.parent, MIDNIGHT)[0].items())
    assert [Decimal(text) for text in shown_ladder["bids"][0]] == list(best)
    assert (shown_ladder["breaks"], shown_ladder["last_id"], len(shown_ladder["asks"])) == (0, 1060, 10)


def test_a_dropped_change_is_told(root: Path, tmp_path: Path) -> None:
    """The book is shown all the same. Snapshots after the hole are left out unless an option asks for them."""
    lines = (json_line for json_line in messages(root.parent / "feed.gz"))
    kept = [
        f"{message.received_ns} {message.value.decode()}\n" for at, message in enumerate(lines) if at != 43
    ]  # a depth
    (tmp_path / "holed").write_text("".join(kept))
    archive(tmp_path / "archive", captured([tmp_path / "holed"], "feed"), decoders=("binance-usdm",))
    words = (tmp_path / "archive", "--symbol", "BTCUSDT")
    assert "1 change since that snapshot doesn't follow" in said("book", *words, "--at", str(MIDNIGHT))
    whole, broken = (rows_said("book", *words, "--write-snapshots", *more) for more in ((), ("--broken",)))
    assert [(entry["snapshots"], entry["left_out"]) for entry in whole] == [(2, 0), (0, 2)]
    assert [(entry["snapshots"], entry["left_out"]) for entry in broken] == [(2, 0), (2, 0)]


def test_snapshots_are_the_book_at_their_times(root: Path) -> None:
    """Five levels every four seconds. Midnight has a snapshot, so that the next date can be read alone."""
    opened_archive = Committed.open(str(root))
    book = deltas.find(opened_archive, "BTCUSDT")
    written = list(snapshots.write(opened_archive, book, 4 * SECOND, 5))
    assert [
        (snapshot_file.date, snapshot_file.snapshots, snapshot_file.rows, snapshot_file.left_out)
        for snapshot_file in written
    ] == [
        ("2024-08-08", 5, 50, 0),
        ("2024-08-09", 5, 50, 0),
    ]
    rows = pa.concat_tables(pq.read_table(root / snapshot_file.path) for snapshot_file in written).to_pylist()
    times = sorted({row["ts"] for row in rows})
    assert times == [FIRST + nth * 4 * SECOND for nth in range(10)]
    for ts in times:
        bids, asks = slow(root.parent, ts)
        for side, wanted in ((1, sorted(bids.items())[::-1]), (-1, sorted(asks.items()))):
            here = [row for row in rows if (row["ts"], row["side"]) == (ts, side)]
            assert [row["level"] for row in here] == list(range(5))
            assert [(row["price"], row["size"]) for row in here] == wanted[:5]
    before = [(root / snapshot_file.path).read_bytes() for snapshot_file in written]
    assert [
        (root / snapshot_file.path).read_bytes()
        for snapshot_file in snapshots.write(opened_archive, book, 4 * SECOND, 5)
    ] == before


def test_a_silence_has_no_snapshots(root: Path) -> None:
    opened_archive = Committed.open(str(root))
    written = list(
        snapshots.write(
            opened_archive, deltas.find(opened_archive, "BTCUSDT"), SECOND // 4, 1, end="2024-08-08"
        )
    )
    assert [(snapshot_file.date, snapshot_file.snapshots) for snapshot_file in written] == [
        ("2024-08-08", 21)
    ]  # the snapshot and 20 changes


def test_a_book_goes_on_from_a_full_snapshot(root: Path) -> None:
    opened_archive = Committed.open(str(root))
    book = deltas.find(opened_archive, "BTCUSDT")
    at = MIDNIGHT + 7 * SECOND
    plain = books.at(opened_archive, book, at)
    list(snapshots.write(opened_archive, book, 5 * SECOND, 0))
    stored = books.at(opened_archive, book, at)
    assert (plain.snapshot, stored.snapshot) == (
        "the snapshot at offset 2",
        "the snapshot stored for 2024-08-09T00:00:05.000000000Z",
    )
    assert levels(stored) == levels(plain) == slow(root.parent, at)
    assert (stored.last_id, stored.offset, stored.sync.breaks) == (plain.last_id, plain.offset, 0)
    exact = books.at(opened_archive, book, MIDNIGHT + 5 * SECOND)
    assert levels(exact) == slow(root.parent, MIDNIGHT + 5 * SECOND)
    again = list(snapshots.write(opened_archive, book, 5 * SECOND, 3, start="2024-08-09"))
    assert [(snapshot_file.date, snapshot_file.snapshots) for snapshot_file in again] == [("2024-08-09", 4)]


def test_snapshots_of_every_book_are_written_where_no_symbol_is_named(root: Path, tmp_path: Path) -> None:
    feeds = [(root.parent / "feed.gz", "one"), (write_capture(tmp_path / "eth", symbol="ETHUSDT"), "two")]
    archive(
        tmp_path / "archive",
        pa.concat_tables([captured([feed], topic) for feed, topic in feeds]),
        decoders=("binance-usdm",),
    )
    books_root = tmp_path / "archive"
    said("book", books_root, "--write-snapshots")
    assert {path.parent.name for path in tmp_path.glob("archive/book_snapshots/*/*/*")} == {
        "BTCUSDT",
        "ETHUSDT",
    }
    written = rows_said("book", books_root, "--write-snapshots", "--symbol", "ETHUSDT")
    assert all("/ETHUSDT/two+" in row["path"] for row in written)
    status, error = refused("book", books_root, "--at", str(MIDNIGHT))
    assert (status, "name it with --symbol. Archived are: BTCUSDT, ETHUSDT" in error) == (2, True)
    assert (
        "no book of the topic three"
        in refused("book", books_root, "--write-snapshots", "--topic", "three")[1]
    )


def test_a_book_is_of_one_topic(root: Path, tmp_path: Path) -> None:
    """A book comes from one partition, because several have no common order."""
    rows = captured([root.parent / "feed.gz"], "one")
    other = changed(rows, topic=["two"] * len(rows))
    archive(tmp_path / "topics", pa.concat_tables([rows, other]), decoders=("binance-usdm",))
    opened_archive = Committed.open(str(tmp_path / "topics"))
    with pytest.raises(
        ArchiveError, match="several topics have a book of BTCUSDT: one, two; name one with --topic"
    ):
        deltas.find(opened_archive, "BTCUSDT")
    assert deltas.find(opened_archive, "BTCUSDT", "two").topic == "two"
    split = changed(rows, partition=[at % 2 for at in range(len(rows))])
    archive(tmp_path / "split", split, decoders=("binance-usdm",))
    opened_archive = Committed.open(str(tmp_path / "split"))
    with pytest.raises(ArchiveError, match="several partitions"):
        books.at(opened_archive, deltas.find(opened_archive, "BTCUSDT"), MIDNIGHT)
