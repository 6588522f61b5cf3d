"""A table of results: rich prints it for people, JSON Lines for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

VALUE_CHARS_MAX = 60


class Listing(msgspec.Struct):
    """Rows under columns, with a title above and notes below. Numbers stay numbers until they are printed."""

    title: str
    columns: Sequence[str]
    rows: list[Sequence[Any]] = []
    notes: list[str] = []

    def add(self, *cells: Any) -> None:
        """Add a row."""
        self.rows.append(cells)


def show(listings: Sequence[Listing], console: Console, *, as_json: bool) -> None:
    """Print the tables in order. As JSON: one object per row, with the table's title under ``table``."""
    for listing in listings:
        if as_json:
            for row in listing.rows:
                values = dict(zip(listing.columns, map(_plain, row), strict=True))
                console.out(json.dumps({"table": listing.title, **values}), highlight=False)
            continue
        if listing.rows:
            console.print(_table(listing))
        else:
            console.print(Text(f"{listing.title}: nothing"))
        for note in listing.notes:
            console.print(Text(f"  {note}"))


def _table(listing: Listing) -> Table:
    table = Table(title=Text(listing.title), title_justify="left", box=None, pad_edge=False)
    for at, column in enumerate(listing.columns):
        numbers = all(isinstance(row[at], int) for row in listing.rows)
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in listing.rows:
        table.add_row(
            *(Text(_shown(cell)) for cell in row)
        )  # keeps rich from reading ":x:" and "[b]" in values as markup
    return table


def _shown(cell: Any) -> str:
    if isinstance(cell, bytes):
        return readable(cell, VALUE_CHARS_MAX)
    if cell is None or cell == "":
        return "–"
    if isinstance(cell, int) and not isinstance(cell, bool):
        return f"{cell:,}" if abs(cell) < 10**11 else str(cell)
    text = str(cell)
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def _plain(cell: Any) -> Any:
    return readable(cell, None) if isinstance(cell, bytes) else cell


def readable(data: bytes, chars_max: int | None) -> str:
    """Text if the bytes are printable UTF-8, otherwise hex digits. A long value is cut and shown with its
    size in bytes.
    """
    try:
        text = data.decode()
        if not text.isprintable():
            raise ValueError
    except ValueError:
        text = "0x" + data.hex()
    if chars_max is None or len(text) <= chars_max:
        return text
    return f"{text[:chars_max]}… ({len(data):,} bytes)"
