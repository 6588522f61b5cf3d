"""The choice of the files that a compaction merges. Pure: entries in, groups out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import attrs

from blumfeld_sink_spark.files import file_names
from blumfeld_sink_spark.files.file_names import FileName
from blumfeld_sink_spark.records import CommitRecord, FileEntry
from blumfeld_sink_spark.tables import DERIVED, GAPS


@attrs.frozen
class Group:
    """Small files of one table, date, symbol and topic, in the order of their partitions and offsets."""

    table: str
    date: str
    symbol: str
    topic: str
    entries: tuple[FileEntry, ...]
    generation: int
    """Generation of the new files: one above the highest that was ever used for this table, date, symbol and topic."""
    start: int
    end: int

    @property
    def folder(self) -> str:
        """Folder of the files, relative to the root."""
        return self.entries[0].path.rpartition("/")[0]

    @property
    def rows(self) -> int:
        """Rows of all files together."""
        return sum(entry.rows for entry in self.entries)

    @property
    def bytes(self) -> int:
        """Bytes of all files together."""
        return sum(entry.bytes for entry in self.entries)

    @property
    def partition(self) -> int:
        """Partition of all files, or -1 if they have several."""
        partitions = {entry.partition for entry in self.entries}
        return partitions.pop() if len(partitions) == 1 else -1

    def rows_per_file(self, target_bytes: int) -> int:
        """Returns how many rows a new file gets, so that all have about the wanted size and the same number of rows."""
        parts = max(1, round(self.bytes / target_bytes))
        return -(-self.rows // parts)

    def path(self, number: int, parts: int) -> str:
        """Returns the path of the ``number``-th of ``parts`` new files, counted from 0."""
        part = number + 1 if parts > 1 else 0
        path = file_names.path_of(
            self.table,
            self.date,
            None,
            self.topic,
            self.partition,
            self.start,
            self.end,
            self.generation,
            part,
        )
        return f"{self.folder}/{path.rpartition('/')[2]}"


@attrs.frozen
class Files:
    """The files of an archive by its commit records."""

    live: tuple[FileEntry, ...]
    """Files that a record names and none removes, sorted by path."""
    generations: dict[tuple[str, str, str, str], int]
    """Highest generation that was ever used, by table, date, symbol and topic. A removed name must not come back: a
    record that names the old file would then seem to name the new one.
    """

    @classmethod
    def of(cls, records: Iterable[CommitRecord]) -> Files:
        """Returns the files by these records, which are all records of all queries."""
        named: dict[str, FileEntry] = {}
        removed: set[str] = set()
        for record in records:
            named.update((entry.path, entry) for entry in record.files)
            removed.update(record.removed)
        generations: dict[tuple[str, str, str, str], int] = {}
        for path, entry in named.items():
            name = file_names.parse(path)
            if name is not None:
                generations[_key(entry)] = max(name.generation, generations.get(_key(entry), 0))
        return cls(tuple(named[path] for path in sorted(named.keys() - removed)), generations)


OPEN, LARGE, ALONE, UNNUMBERED = "open", "large", "alone", "unnumbered"
"""Reasons to leave a file alone: its date isn't closed; it is large enough; no other small file lies beside it; its
table has no lineage (``gaps``).
"""

_Small = dict[tuple[tuple[str, str, str, str], str], list[tuple[FileName, FileEntry]]]


def plan(files: Files, *, before: str, table: str = "", target_bytes: int) -> list[Group]:
    """Groups worth merging: two files or more that are smaller than half the target, of a date before ``before``.

    Tables that have no lineage (``gaps``, derived ones) are left alone. What a compaction makes isn't small unless
    all of its group is, so that compacting again changes nothing until new files come.
    """
    small_files, _ = _sorted_out(files, before, table, target_bytes)
    return [
        Group(
            *key,
            entries=tuple(entry for _, entry in sorted(small, key=_place)),
            generation=files.generations[key] + 1,
            start=min(name.start for name, _ in small),
            end=max(name.end for name, _ in small),
        )
        for (key, _), small in sorted(small_files.items())
        if len(small) > 1
    ]


def left_alone(files: Files, *, before: str, table: str = "", target_bytes: int) -> Counter[str]:
    """Returns the number of files that ``plan`` leaves alone, by reason."""
    small_files, reasons = _sorted_out(files, before, table, target_bytes)
    reasons[ALONE] += sum(len(small) == 1 for small in small_files.values())
    return +reasons


def _sorted_out(files: Files, before: str, table: str, target_bytes: int) -> tuple[_Small, Counter[str]]:
    """Returns the small files of closed dates by key and folder, and the number of the others by reason."""
    small_files: _Small = {}
    reasons: Counter[str] = Counter()
    for entry in files.live:
        name = file_names.parse(entry.path)
        if table and entry.table != table:
            continue
        if name is None or entry.table in (GAPS, *DERIVED):
            reasons[UNNUMBERED] += 1
        elif entry.date >= before:
            reasons[OPEN] += 1
        elif entry.bytes * 2 >= target_bytes:
            reasons[LARGE] += 1
        else:
            folder = entry.path.rpartition("/")[0]  # a compaction exchanges the files of one folder
            small_files.setdefault((_key(entry), folder), []).append((name, entry))
    return small_files, reasons


def _key(entry: FileEntry) -> tuple[str, str, str, str]:
    return entry.table, entry.date, entry.symbol, entry.topic


def _place(named_entry: tuple[FileName, FileEntry]) -> tuple[int, int, str]:
    return named_entry[0].partition, named_entry[0].start, named_entry[1].path
