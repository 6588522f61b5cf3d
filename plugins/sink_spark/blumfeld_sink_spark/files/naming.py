"""Where a file of the archive lies. Names follow from what is in the file, so that a batch that is run again replaces
its own files and no others.

``<table>/date=YYYY-MM-DD/symbol=SYM/<topic>+<partition>+<start>-<end>.parquet``, relative to the root, with ``/``.
The parts of a name are joined with ``+``, which Kafka allows in no topic.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

import attrs

STAGING = "_staging"
"""Folders that start with ``_`` hold no data: a glob below a table's folder doesn't see them."""

NO_SYMBOL = "__HIVE_DEFAULT_PARTITION__"
"""The folder of an empty symbol, as Hive has it: ``symbol=`` alone would be read as anything."""

_SAFE = "._-"
_NAME = re.compile(
    r"(?P<topic>[^+/]+)\+(?P<partition>\d{5,}|all)\+(?P<start>\d{20})-(?P<end>\d{20})"
    r"(?:\.c(?P<generation>\d+)(?:-(?P<part>\d+))?)?\.parquet"
)


@attrs.frozen
class FileName:
    """What the path of a file with offsets says."""

    table: str
    date: str
    symbol: str
    """As the exchange spells it; empty where the table has no folders for symbols."""
    topic: str
    partition: int
    """-1: of several (``all`` in the name)."""
    start: int
    end: int
    """Outside."""
    generation: int = 0
    """0 as archived; above, how many compactions made it."""
    part: int = 0
    """Of a compaction that made several files of one range, from 1; 0 where it made one."""


def encode_symbol(symbol: str) -> str:
    """A symbol as part of a path: UTF-8, percent-encoded where it isn't ``[A-Za-z0-9._-]``.

    DuckDB, Polars and Arrow give the symbol back; Spark does so in ASCII only (each ``%XX`` becomes a letter). Names
    beyond ASCII in the path itself would be worse: a JVM whose locale isn't UTF-8 can't open them.
    """
    return quote(symbol, safe=_SAFE).replace("~", "%7E") if symbol else NO_SYMBOL


def decode_symbol(part: str) -> str:
    """What ``encode_symbol`` was given."""
    return "" if part == NO_SYMBOL else unquote(part)


def folder_of(table: str, date: str, symbol: str | None) -> str:
    """The folder of a table's files of one date and symbol; ``None`` where the table isn't partitioned by symbol."""
    folder = f"{table}/date={date}"
    return folder if symbol is None else f"{folder}/symbol={encode_symbol(symbol)}"


def path_of(
    table: str,
    date: str,
    symbol: str | None,
    topic: str,
    partition: int,
    start: int,
    end: int,
    generation: int = 0,
    part: int = 0,
) -> str:
    """The path of a file made of the offsets ``start`` to ``end`` (outside) of a partition (-1: of all of them).

    The range is the planned one, so files of one table, date, symbol and partition with the same generation never
    overlap, and sort by name as by offset.
    """
    where = "all" if partition < 0 else f"{partition:05d}"
    suffix = (f".c{generation}" if generation else "") + (f"-{part:03d}" if part else "")
    return f"{folder_of(table, date, symbol)}/{topic}+{where}+{start:020d}-{end:020d}{suffix}.parquet"


def gaps_path(date: str, symbol: str, query: str, batch: int) -> str:
    """The path of the gaps that one batch found in one symbol."""
    return f"{folder_of('gaps', date, symbol)}/{query}+{batch:010d}.parquet"


def staged_path(unique: str) -> str:
    """Where a file waits to be published. No reader's glob of ``*.parquet`` sees it."""
    return f"{STAGING}/{unique}.inprogress"


def parse(path: str) -> FileName | None:
    """What ``path_of`` was given; ``None`` for a path of another kind (gaps, derived tables, not the archive's)."""
    folder, _, name = path.rpartition("/")
    table, *parted = folder.split("/")
    parts = dict(part.partition("=")[::2] for part in parted)
    found = _NAME.fullmatch(name)
    if found is None or "date" not in parts:
        return None
    return FileName(
        table=table,
        date=parts["date"],
        symbol=decode_symbol(parts.get("symbol", NO_SYMBOL)),
        topic=found["topic"],
        partition=-1 if found["partition"] == "all" else int(found["partition"]),
        start=int(found["start"]),
        end=int(found["end"]),
        generation=int(found["generation"] or 0),
        part=int(found["part"] or 0),
    )
