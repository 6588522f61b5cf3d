"""The values that go between Spark's tasks, the driver and the ledger. All of them are data: what is decided is
elsewhere.
"""

from __future__ import annotations

from typing import Any

import msgspec


class OffsetRange(msgspec.Struct, frozen=True, order=True):
    """Offsets of one partition, ``start`` inside, ``end`` outside. As planned: a compacted or transactional log
    has fewer rows.
    """

    topic: str
    partition: int
    start: int
    end: int


class Seam(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """A partition that a new query goes on with right where the batch of another ended."""

    topic: str
    partition: int
    query: str
    batch: int


class StagedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a task wrote and synced under ``_staging``, seen by nobody yet."""

    table: str
    date: str
    """``YYYY-MM-DD``, UTC, of the event."""
    symbol: str
    """Empty for tables that aren't partitioned by symbol (``raw``, ``quarantine``)."""
    topic: str
    partition: int
    staged: str
    """Path relative to the archive's root."""
    rows: int
    bytes: int
    sha256: str
    ts_min: int
    ts_max: int
    """Of the table's time column, ns."""


class Span(msgspec.Struct, frozen=True, order=True, array_like=True):
    """Offsets of one partition that have no row, ``end`` outside."""

    start: int
    end: int
    reason: str
    """One of ``accounting``'s reasons."""


class DecoderCount(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the messages of a range in one decoder. The three sum up to the messages."""

    read: int
    """Messages that gave a row at least."""
    quarantined: int
    passed_over: dict[str, int] = {}
    """Messages without a row, by kind."""


class RangeCount(msgspec.Struct, frozen=True, kw_only=True):
    """What became of each offset of a range. ``accounting.wrong`` says whether the sums close."""

    topic: str
    partition: int
    start: int
    end: int
    """As planned; outside."""
    messages: int
    """Given to the decoders."""
    skipped: dict[str, int] = {}
    """Offsets that gave no message, by reason."""
    with_rows: int
    """Messages that have a row in some table; ``quarantine`` is one."""
    rows: dict[str, int] = {}
    """Rows by table, as the decoders made them."""
    decoders: dict[str, DecoderCount] = {}
    spans: tuple[Span, ...] = ()
    """Offsets without a row, sorted: those that are ``skipped``, and messages without a row (reason ``no_row``)."""
    unnamed: int = 0
    """Offsets without a row that ``spans`` has no room for."""
    rows_crc: int = 0
    """CRC-32 of the offsets that have a row, in order, each as int64 of the machine's little end."""
    content_crc: tuple[int, int, int] = (0, 0, 0)
    """CRC-32 of the messages in order: of their keys, of their values, and of offset, timestamp and both lengths."""


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a task made of the rows of one partition: a commit message that Spark carries to the driver."""

    topic: str
    partition: int
    messages: int
    first_offset: int
    last_offset: int
    """Of the rows seen, both inside; -1 where there was none."""
    bytes_in: int
    """Keys and values."""
    files: tuple[StagedFile, ...]
    sequences: dict[str, Any]
    """What ``quality`` made of the sequences of this range alone: builtins only, so that it goes through JSON.
    """
    quarantined: int
    decoders: dict[str, int]
    """Name → version of each that was used."""
    count: RangeCount
    """What became of each offset of the range that the task was given. A task of the reader ``jvm`` doesn't know its
    range, and counts from its first message to its last.
    """


class FileEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A published file, as a commit record names it."""

    path: str
    """Relative to the root, with ``/``."""
    table: str
    date: str
    symbol: str = ""
    topic: str = ""
    partition: int = -1
    """-1 for files that cover several (compacted ones, ``gaps``)."""
    rows: int
    bytes: int
    sha256: str
    ts_min: int = 0
    ts_max: int = 0


class CommitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One batch, wholly published. The file that holds it is the commit: what no record names isn't in the
    archive.
    """

    version: int = 1
    query: str
    """Of the checkpoint: a new checkpoint is another query."""
    batch: int
    """Spark's batch id, from 0."""
    ranges: tuple[OffsetRange, ...]
    """Planned, from Spark's offset log; sorted. Empty ranges are left out."""
    lost: tuple[OffsetRange, ...] = ()
    """What the topic no longer had when it was to be read, where ``fail_on_data_loss`` is off."""
    files: tuple[FileEntry, ...]
    removed: tuple[str, ...] = ()
    """Paths of files that this record replaces (compaction)."""
    messages: int
    bytes_in: int
    quarantined: int
    gaps: int
    decoders: dict[str, int]
    state: dict[str, Any]
    """What ``quality`` carries into the next batch of this query: builtins only."""
    committed_ms: int
    """Wall clock, for people."""
    seconds: float = 0.0
    """What the batch took, for people."""
    counts: tuple[RangeCount, ...] = ()
    """The counts of each range, in their order. Records of older versions have none."""
    reader: str = ""
    isolation: str = ""
    """With what ``isolation.level`` the ranges were read."""
