"""Paths of the archive's files. Names follow from a file's content, so a batch that is run again replaces its own files
and no others.

``<table>/date=YYYY-MM-DD/SYM/<topic>+<partition>+<start>-<end>.parquet``, relative to the root, with ``/``. The parts
of a name are joined with ``+``, which Kafka allows in no topic.

The symbol's folder is a bare name, not ``symbol=SYM``: the files have a column ``symbol``, and readers that make a
column of such a folder too (pyarrow, pandas) refuse a table in which the two have different types. Older archives have
``symbol=SYM``; those files keep their place, and are read like all others.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

import attrs

STAGING = "_staging"
"""Folders that start with ``_`` hold no data: a glob below a table's folder doesn't see them."""

NO_SYMBOL = "~"
"""The folder of an empty symbol. No symbol is encoded to it."""

_SAFE = "._-"
_HIDDEN = ("_", ".")
"""First characters of folders that readers such as Spark pass over. A symbol that begins with one is encoded."""
_OLD_KEY, _OLD_NO_SYMBOL = "symbol=", "__HIVE_DEFAULT_PARTITION__"
"""The prefix of a symbol's folder in older archives, and the folder of an empty symbol."""
_NAME = re.compile(
    r"(?P<topic>[^+/]+)\+(?P<partition>\d{5,}|all)\+(?P<start>\d{20})-(?P<end>\d{20})"
    r"(?:\.c(?P<generation>\d+)(?:-(?P<part>\d+))?)?\.parquet"
)


@attrs.frozen
class FileName:
    """The parts of a path with offsets."""

    table: str
    date: str
    symbol: str
    """The symbol in the exchange's spelling; empty where the table has no folders for symbols."""
    topic: str
    partition: int
    """-1: of several (``all`` in the name)."""
    start: int
    end: int
    """Outside."""
    generation: int = 0
    """0 as archived; above, how many compactions made it."""
    part: int = 0
    """The number of the file, from 1, where a compaction made several of one range; 0 where it made one."""


def encode_symbol(symbol: str) -> str:
    """A symbol as part of a path: UTF-8, percent-encoded where it isn't ``[A-Za-z0-9._-]``.

    Names beyond ASCII in the path itself would be worse: a JVM whose locale isn't UTF-8 can't open them.
    """
    if not symbol:
        return NO_SYMBOL
    encoded = quote(symbol, safe=_SAFE).replace("~", "%7E")
    return f"%{ord(encoded[0]):02X}{encoded[1:]}" if encoded.startswith(_HIDDEN) else encoded


def decode_symbol(part: str) -> str:
    """Returns the symbol that ``encode_symbol`` was given, also from a folder ``symbol=…``."""
    name = part.removeprefix(_OLD_KEY)
    return "" if name in (NO_SYMBOL, _OLD_NO_SYMBOL) else unquote(name)


def is_old_place(path: str) -> bool:
    """Returns True where a file lies in a folder ``symbol=…``."""
    return f"/{_OLD_KEY}" in path


def values_of(path: str) -> dict[str, str]:
    """``date``, and ``symbol`` where there is a folder for it, of a file's path. An empty symbol is ``""``."""
    values = {}
    for folder in path.split("/")[1:-1]:
        if folder.startswith("date="):
            values["date"] = folder.removeprefix("date=")
        else:
            values["symbol"] = decode_symbol(folder)
    return values


def folder_of(table: str, date: str, symbol: str | None) -> str:
    """The folder of a table's files of one date and symbol; ``None`` where the table isn't partitioned by symbol."""
    folder = f"{table}/date={date}"
    return folder if symbol is None else f"{folder}/{encode_symbol(symbol)}"


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
    """Returns the path at which a file waits to be published. No reader's glob of ``*.parquet`` sees it."""
    return f"{STAGING}/{unique}.inprogress"


def parse(path: str) -> FileName | None:
    """Returns the arguments that ``path_of`` was given; ``None`` for a path of another kind (gaps, derived tables,
    foreign files).
    """
    values = values_of(path)
    match = _NAME.fullmatch(path.rpartition("/")[2])
    if match is None or "date" not in values:
        return None
    return FileName(
        table=path.partition("/")[0],
        date=values["date"],
        symbol=values.get("symbol", ""),
        topic=match["topic"],
        partition=-1 if match["partition"] == "all" else int(match["partition"]),
        start=int(match["start"]),
        end=int(match["end"]),
        generation=int(match["generation"] or 0),
        part=int(match["part"] or 0),
    )
