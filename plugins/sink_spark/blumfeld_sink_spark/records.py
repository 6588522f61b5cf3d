"""The values that tasks, driver and ledger exchange. They are plain data without behaviour."""

from __future__ import annotations

from typing import Any

import msgspec


class OffsetRange(msgspec.Struct, frozen=True, order=True):
    """A planned range of one partition's offsets; ``end`` is exclusive. A compacted or transactional log has fewer
    messages than the range has offsets.
    """

    topic: str
    partition: int
    start: int
    end: int


class Seam(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """The batch of another query that a new query follows without a gap, in one partition."""

    topic: str
    partition: int
    query: str
    batch: int


class StagedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a task wrote and synced under ``_staging``. Readers don't see it yet."""

    table: str
    date: str
    """UTC date of the rows' time column, ``YYYY-MM-DD``."""
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
    """Latest value of the table's time column, ns since the epoch; ``ts_min`` is the earliest."""


class Span(msgspec.Struct, frozen=True, order=True, array_like=True):
    """Offsets of one partition that have no row; ``end`` is exclusive."""

    start: int
    end: int
    reason: str
    """One of ``range_counts``'s reasons."""


class DecoderCount(msgspec.Struct, frozen=True, kw_only=True):
    """The fate of a range's messages in one decoder. The three counts add up to the messages."""

    read: int
    """Messages that gave at least one row."""
    quarantined: int
    passed_over: dict[str, int] = {}
    """Messages without a row, by kind."""


class RangeCount(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a range's offsets. ``range_counts.wrong`` checks that they add up."""

    topic: str
    partition: int
    start: int
    end: int
    """Planned end, exclusive."""
    messages: int
    """Messages that the decoders got."""
    skipped: dict[str, int] = {}
    """Offsets that gave no message, by reason."""
    with_rows: int
    """Messages with a row in any table, ``quarantine`` too."""
    rows: dict[str, int] = {}
    """Rows by table, as the decoders made them."""
    decoders: dict[str, DecoderCount] = {}
    spans: tuple[Span, ...] = ()
    """Offsets without a row, sorted: skipped offsets, and messages without a row (reason ``no_row``)."""
    unnamed: int = 0
    """Offsets without a row that ``spans`` has no room for."""
    rows_crc: int = 0
    """CRC-32 of the offsets that have a row, in order, each as a little-endian int64."""
    content_crc: tuple[int, int, int] = (0, 0, 0)
    """Three CRC-32 over the messages in order: their keys, their values, and (offset, timestamp, both lengths)."""


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    """A task's result for one partition. Spark carries it to the driver as a commit message."""

    topic: str
    partition: int
    messages: int
    first_offset: int
    last_offset: int
    """Last offset seen, inclusive. Both offsets are -1 where no message came."""
    bytes_in: int
    """Bytes of keys and values."""
    files: tuple[StagedFile, ...]
    sequences: dict[str, Any]
    """``quality``'s summary of this range's sequences; builtins only, so that it goes through JSON."""
    quarantined: int
    decoders: dict[str, int]
    """Version by decoder name."""
    count: RangeCount
    """The counts of the task's range. A task of the reader ``jvm`` doesn't know its range, and counts from its first
    message to its last.
    """


class FileEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A published file, as a commit record names it."""

    path: str
    """Path relative to the root, with ``/``."""
    table: str
    date: str
    symbol: str = ""
    topic: str = ""
    partition: int = -1
    """-1 for files with several partitions (compacted files, ``gaps``)."""
    rows: int
    bytes: int
    sha256: str
    ts_min: int = 0
    ts_max: int = 0


class CommitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A published batch. Writing the record is the commit: a file that no record names isn't in the archive."""

    version: int = 1
    query: str
    """Name of the checkpoint's query. A new checkpoint is another query."""
    batch: int
    """Spark's batch id, from 0."""
    ranges: tuple[OffsetRange, ...]
    """Planned ranges from Spark's offset log, sorted, without empty ones."""
    lost: tuple[OffsetRange, ...] = ()
    """Offsets that the topic no longer had when they were read; only with ``fail_on_data_loss`` off."""
    files: tuple[FileEntry, ...]
    removed: tuple[str, ...] = ()
    """Paths of files that this record replaces (compaction)."""
    messages: int
    bytes_in: int
    quarantined: int
    gaps: int
    decoders: dict[str, int]
    state: dict[str, Any]
    """State that ``quality`` carries into the query's next batch; builtins only."""
    committed_ms: int
    """Wall-clock time of the commit, for people."""
    seconds: float = 0.0
    """Duration of the batch, for people."""
    counts: tuple[RangeCount, ...] = ()
    """One count for each of ``ranges``, in their order. Records of older versions have none."""
    reader: str = ""
    isolation: str = ""
    """The ``isolation.level`` that the ranges were read with."""
