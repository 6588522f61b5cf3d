"""Compares an archive's books with the exchange's own best bid and ask, and its gaps with the exchange's numbering."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

from blumfeld.feeds.binance import MadeFeed, Message
from campaigns.archive.common.capture import decoder_of, read_capture, write_capture
from campaigns.archive.common.process import Archive
from campaigns.archive.common.report import Report
from campaigns.archive.golden import ONCE_S, load, started, step

Best = tuple[Decimal, Decimal, Decimal, Decimal]
"""Bid, size of the bid, ask, size of the ask."""
BATCH = 1_000
MADE_MESSAGES = 60_000
KNOWN = {
    ("btcusdt_20240808.gz", "binance-usdm"): 629,
    ("btcusdt_20240808.gz,btcusdt_20240809.gz", "binance-spot"): 1072,
}
"""Number of comparable best bids and asks, for captures in which it is known."""


def oracle(
    folder: Path, report: Report, *, captures: Sequence[Path], decoder: str, reader: str, seed: int
) -> None:
    """Archives each venue's captures as one feed, and a made feed from which every thousandth message was dropped."""
    feeds: dict[str, list[Path]] = {}
    for path in captures:
        feeds.setdefault(decoder or decoder_of(read_capture(path)), []).append(path)
    made = MadeFeed(seed).messages(MADE_MESSAGES)
    holed = [message for at, message in enumerate(made, 1) if at % BATCH]
    with ExitStack() as stack:
        bootstrap = started(stack, folder).address
        for name, parts in feeds.items():
            _compare(folder, report, bootstrap, name, parts, name, reader)
        for name, messages in (("made", made), ("holed", holed)):
            path = write_capture(folder / f"{name}.gz", messages)
            _compare(folder, report, bootstrap, name, [path], "binance-usdm", reader)


def _compare(
    folder: Path, report: Report, bootstrap: str, topic: str, paths: list[Path], decoder: str, reader: str
) -> None:
    archive = Archive(folder / topic, bootstrap, [topic], decoders=[decoder], reader=reader)
    for path in paths:
        step(report, f"{topic}: load {path.name}", load(folder, bootstrap, path, topic))
    outcome = archive.run("once", timeout_s=2 * ONCE_S, max_offsets_per_trigger=20 * BATCH)
    if not step(report, f"{topic}: archive once", outcome):
        return
    if topic != "holed":
        known = KNOWN.get((",".join(path.name for path in paths), decoder))
        _compare_books(report, archive.root, f"{topic}: best bids and asks", known)
    messages = [message for path in paths for message in read_capture(path)]
    _compare_gaps(report, archive.root, f"{topic}: gaps", breaks(messages))


def _compare_books(report: Report, root: Path, title: str, known: int | None) -> None:
    """Compares the archive's book after each message with the exchange's quote of the same update id."""
    from blumfeld_sink_spark.book.best import Tops
    from blumfeld_sink_spark.book.sync import Sync

    began = time.monotonic()
    quotes: Mapping[int, Best] = {
        row.pop("update_id"): tuple(row.values()) for row in _rows(root, "bbo", QUOTE)
    }
    deltas = _table(root, "book_deltas").sort_by([("k_offset", "ascending")])
    tops = [top for top in Tops().take(Sync().feed(deltas)) if top.last_id in quotes]
    wrong = [
        f"at {top.last_id}: {top_of_book}, the exchange {quotes[top.last_id or -1]}"
        for top in tops
        if (top_of_book := (top.bid, top.bid_size, top.ask, top.ask_size)) != quotes[top.last_id or -1]
    ]
    share = f"{len(tops) - len(wrong)} of {len(tops)} equal, price and size"
    if not tops or len(tops) != (known or len(tops)):
        wrong.insert(0, f"compared {len(tops)} times, known are {known}")
    report.add(title, share, wrong[:5], time.monotonic() - began)


def _compare_gaps(report: Report, root: Path, title: str, expected: set[int]) -> None:
    """Checks that ``gaps`` names the offsets at which the feed breaks the exchange's numbering, and no others."""
    named = {row["k_offset"] for row in _rows(root, "gaps", ["k_offset"])}
    wrong = [f"{offset} is not named" for offset in sorted(expected - named)]
    wrong += [f"{offset} is named" for offset in sorted(named - expected)]
    report.add(title, f"{len(named)} offsets, {len(expected)} breaks of the feed", wrong[:8])


def breaks(messages: Sequence[Message]) -> set[int]:
    """Returns the offsets at which the feed breaks the exchange's numbering: of trades by id, of diffs by ``pu``."""
    last: dict[str, int] = {}
    offsets = set()
    for offset, message in enumerate(messages):
        data = message.parsed()
        data = data.get("data", data)
        stream = data.get("e", "")
        if stream == "trade":
            before, now = data["t"] - 1, data["t"]
        elif stream == "depthUpdate":
            before, now = data.get("pu", data["U"] - 1), data["u"]
        else:
            continue
        if last.get(stream, before) != before:
            offsets.add(offset)
        last[stream] = max(now, last.get(stream, now))
    return offsets


QUOTE = ["update_id", "bid", "bid_size", "ask", "ask_size"]


def _rows(root: Path, table: str, columns: list[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (
        _table(root, table).select(columns).to_pylist() if (root / table).exists() else []
    )
    return rows


def _table(root: Path, table: str) -> Any:
    import pyarrow.dataset as ds

    return ds.dataset(root / table, partitioning="hive").to_table()
