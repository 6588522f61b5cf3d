"""``archive book``: shows a book at a time, or writes its snapshots as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from blumfeld_sink_spark.commands.common.edge import edge
from blumfeld_sink_spark.commands.common.shown import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from decimal import Decimal

    from blumfeld_sink_spark.reading.committed_files import Committed
    from blumfeld_sink_spark.reading.market.books import Standing
    from blumfeld_sink_spark.reading.market.deltas import BookOf

BAR_CELLS = 24


@edge
def command(
    symbol: Annotated[
        list[str] | None,
        typer.Option(help="As the exchange spells it. With --write-snapshots: several, or all without it."),
    ] = None,
    root: Annotated[str, typer.Option(help="The archive.")] = "archive",
    at: Annotated[
        str | None, typer.Option(help="2024-08-09T00:00:01.5Z, or s, ms, µs, ns as digits.")
    ] = None,
    depth: Annotated[int, typer.Option(min=0, help="Levels of each side; 0 is all.")] = 10,
    topic: Annotated[str, typer.Option(help="Needed if several topics have the symbol.")] = "",
    venue: Annotated[str, typer.Option(help="Needed if the topic has several venues.")] = "",
    write_snapshots: Annotated[
        bool, typer.Option("--write-snapshots", help="Write the table book_snapshots instead.")
    ] = False,
    every: Annotated[str, typer.Option(help="Interval of the snapshots; it must divide a day.")] = "10s",
    start: Annotated[
        str | None, typer.Option("--from", help="Snapshots from the date of this time on.")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="Snapshots up to the date of this time.")] = None,
    broken: Annotated[
        bool, typer.Option("--broken", help="Snapshots also where changes before them are missing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON.")] = False,
) -> None:
    """Show the book at a time, from the snapshot before it and the changes since, or write snapshots of books."""
    from blumfeld_sink_spark.errors import SettingsError
    from blumfeld_sink_spark.reading.committed_files import Committed
    from blumfeld_sink_spark.reading.market import deltas
    from blumfeld_sink_spark.reading.times import ns_of
    from blumfeld_sink_spark.tables import BOOK_DELTAS

    at_ns, start_ns, end_ns = (ns_of(text) for text in (at, start, end))
    if (at_ns is None) != write_snapshots:
        given = "both are" if write_snapshots else "neither is"
        raise SettingsError(f"--at TIME and --write-snapshots: {given} given; allowed: one of them")
    archive = Committed.open(root)
    symbols = symbol or []
    if at_ns is None:
        books = deltas.books(archive, symbols, topic, venue)
        _write(archive, books, every, depth, (start_ns, end_ns), broken, as_json)
    elif len(symbols) != 1:
        known = ", ".join(archive.symbols(BOOK_DELTAS)) or "none"
        raise SettingsError(f"--at shows one book; name it with --symbol. Archived are: {known}")
    else:
        _show(archive, deltas.find(archive, symbols[0], topic, venue), at_ns, depth, as_json)


def _show(archive: Committed, book: BookOf, at_ns: int, depth: int, as_json: bool) -> None:
    from blumfeld_sink_spark.reading.market import books

    standing = books.at(archive, book, at_ns)
    if as_json:
        typer.echo(_json(standing, book, depth))
    else:
        _print(standing, book, depth)


def _json(standing: Standing, book: BookOf, depth: int) -> str:
    import msgspec

    sides = {
        name: [
            [f"{row['price'].normalize():f}", f"{row['size'].normalize():f}"]
            for row in _levels(standing, side, depth)
        ]
        for name, side in (("bids", 1), ("asks", -1))
    }
    fields = {
        "symbol": book.symbol,
        "venue": standing.venue,
        "topic": book.topic,
        "ts_event": standing.ts_event,
        "last_id": standing.last_id,
        "offset": standing.offset,
        "snapshot": standing.snapshot,
        "breaks": standing.sync.breaks,
        "broken_at": standing.sync.broken_at,
        "checksum": standing.checksum,
        **sides,
    }
    return msgspec.json.encode(fields).decode()


def _levels(standing: Standing, side: int, depth: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = standing.ladder.side(side, depth).to_pylist()
    return rows


def _print(standing: Standing, book: BookOf, depth: int) -> None:
    from rich.console import Console
    from rich.table import Table

    from blumfeld_sink_spark.reading.times import iso_of

    console = Console()
    bids, asks = (_levels(standing, side, depth) for side in (1, -1))
    most = max((row["size"] for row in (*bids, *asks)), default=None)
    places = {name: _places(row[name] for row in (*bids, *asks)) for name in ("price", "size")}
    table = Table(title=f"{book.symbol} at {iso_of(standing.ts_event)}", show_edge=False)
    for name in ("", "price", "size"):
        table.add_column(name, justify="right" if name else "left")
    table.add_column("", width=BAR_CELLS)
    for rows, name, colour in ((asks[::-1], "ask", "red"), (bids, "bid", "green")):
        for row in rows:
            bar = "█" * max(1, round(BAR_CELLS * float(row["size"] / most))) if most else ""
            price, size = (f"{row[column]:,.{places[column]}f}" for column in ("price", "size"))
            table.add_row(name, price, size, bar, style=colour)
        if name == "ask":
            table.add_section()
    console.print(table)
    if bids and asks:
        spread = asks[0]["price"] - bids[0]["price"]
        console.print(f"spread {spread.normalize():,f}")
    console.print(
        f"{standing.venue}, update {standing.last_id}, offset {standing.offset} of {book.topic}; from "
        f"{standing.snapshot}",
        highlight=False,
    )
    if breaks := standing.sync.breaks:
        console.print(
            f"{counted(breaks, 'change')} since that snapshot {'does' if breaks == 1 else 'do'}n't follow the one "
            f"before, the first at offset "
            f"{standing.sync.broken_at}: levels may be wrong (blumfeld archive gaps)",
            style="yellow",
            highlight=False,
        )
    if standing.checksum is False:
        console.print(
            f"{standing.venue}'s checksum after that update is another: levels are wrong (blumfeld archive gaps)",
            style="yellow",
            highlight=False,
        )


def _places(numbers: Iterable[Decimal]) -> int:
    """Returns the number of decimal places that these numbers need."""
    return max((0, *(-int(number.normalize().as_tuple().exponent) for number in numbers)))


def _write(
    archive: Committed,
    books: Sequence[BookOf],
    every: str,
    depth: int,
    times: tuple[int | None, int | None],
    broken: bool,
    as_json: bool,
) -> None:
    from rich.console import Console
    from rich.table import Table

    from blumfeld_sink_spark.reading.market import snapshots
    from blumfeld_sink_spark.reading.market.intervals import interval_ns
    from blumfeld_sink_spark.reading.times import iso_of

    start, end = ("" if ns is None else iso_of(ns)[:10] for ns in times)
    table = Table(title=f"snapshots every {every}")
    for name in ("date", "symbol", "topic", "snapshots", "rows", "left out"):
        table.add_column(name, justify="left" if name in ("date", "symbol", "topic") else "right")
    for book in books:
        for written in snapshots.write(
            archive, book, interval_ns(every), depth, start=start, end=end, broken=broken
        ):
            if as_json:
                import attrs
                import msgspec

                typer.echo(msgspec.json.encode(attrs.asdict(written)).decode())
            counts = (f"{number:,}" for number in (written.snapshots, written.rows, written.left_out))
            table.add_row(written.date, book.symbol, book.topic, *counts)
    if not as_json:
        Console().print(table if table.row_count else "no snapshots: nothing is archived for those dates")
