"""The events that an archive reports while it works. Published batches are also lines of ``_progress/<name>.jsonl``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from blumfeld_sink_spark.records import CommitRecord
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.spark.topics import offset_plans


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A remark for a person. The archive goes on."""

    text: str


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A step that may take seconds has started. The next event ends it."""

    text: str


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """The broker is away. Published batches stay, and the archive goes on behind them when the broker is back.

    The event comes again and again until :class:`Back`.
    """

    text: str
    """The error of the last try."""
    away_s: float
    """Length of the outage so far."""
    next_s: float
    """Pause before the next try; 0 while a query runs, which asks without a pause."""


class Back(msgspec.Struct, frozen=True, kw_only=True):
    """The end of an outage: the broker answers again."""

    away_s: float


class BatchDone(msgspec.Struct, frozen=True, kw_only=True):
    """A published batch."""

    query: str
    batch: int
    at_ms: int
    """Wall-clock time of the commit."""
    seconds: float
    """Duration of the batch as its commit record has it, from the plan to the record. A batch that an earlier process
    planned counts from this process's trigger.
    """
    messages: int
    bytes_in: int
    rows: dict[str, int]
    """Rows by table, sorted."""
    files: int
    bytes_out: int
    gaps: int
    quarantined: int
    ends: dict[str, dict[str, int]]
    lag: dict[str, dict[str, int]]
    """Offsets behind each partition's end. Spark chooses whether that is the end before or after the batch."""

    @property
    def messages_per_s(self) -> float:
        """Messages of this batch for each of its seconds."""
        return self.messages / self.seconds if self.seconds else 0.0

    @property
    def ratio(self) -> float:
        """Bytes of keys and values for each byte of file; 0 where no file was written."""
        return self.bytes_in / self.bytes_out if self.bytes_out else 0.0


Event = Notice | Step | Waiting | Back | BatchDone


class Totals(msgspec.Struct, kw_only=True):
    """The sums of a run."""

    query: str = ""
    reader: str = ""
    batches: int = 0
    messages: int = 0
    bytes_in: int = 0
    rows: dict[str, int] = {}
    files: int = 0
    bytes_out: int = 0
    gaps: int = 0
    quarantined: int = 0
    seconds: float = 0.0
    """Duration of the whole run, Spark's start included."""
    batch_seconds: float = 0.0
    """Duration of the batches alone."""
    ends: dict[str, dict[str, int]] = {}
    """The next offset of each partition."""
    lag: dict[str, dict[str, int]] = {}

    def add(self, done: BatchDone) -> None:
        """Adds a batch."""
        self.batches += 1
        self.batch_seconds += done.seconds
        self.messages += done.messages
        self.bytes_in += done.bytes_in
        for table, rows in done.rows.items():
            self.rows[table] = self.rows.get(table, 0) + rows
        self.files += done.files
        self.bytes_out += done.bytes_out
        self.gaps += done.gaps
        self.quarantined += done.quarantined
        self.ends, self.lag = done.ends, done.lag


def batch_done(record: CommitRecord, spark: Mapping[str, Any]) -> BatchDone:
    """Returns the event of a batch, from its commit record and Spark's progress of the same batch."""
    rows: dict[str, int] = {}
    for file in record.files:
        rows[file.table] = rows.get(file.table, 0) + file.rows
    source = spark["sources"][0] if spark.get("sources") else {}
    ends = offset_plans.from_json(offsets_of(source.get("endOffset")))
    latest = offset_plans.from_json(offsets_of(source.get("latestOffset")))
    trigger_ms = (spark.get("durationMs") or {}).get("triggerExecution", 0)
    return BatchDone(
        query=record.query,
        batch=record.batch,
        at_ms=record.committed_ms,
        seconds=min(
            (each for each in (record.seconds, trigger_ms / 1000) if each),
            default=0.0,
        ),
        messages=record.messages,
        bytes_in=record.bytes_in,
        rows=dict(sorted(rows.items())),
        files=len(record.files),
        bytes_out=sum(file.bytes for file in record.files),
        gaps=record.gaps,
        quarantined=record.quarantined,
        ends=offset_plans.to_json(ends),
        lag=offset_plans.to_json(offset_plans.lag(ends, latest)),
    )


def offsets_of(value: Any) -> dict[str, dict[str, int]]:
    """Returns the offsets in Spark's progress, which holds them as a document or as its JSON text."""
    if isinstance(value, str):
        value = msgspec.json.decode(value)
    return value if isinstance(value, dict) else {}


class ProgressFile:
    """Appends batches to the archive's progress file.

    The file is for people only. It is never synced, and a full disk is no error here: the ledger is the record.
    """

    def __init__(self, settings: ArchiveSettings) -> None:
        self.path = progress_path(settings)

    def add(self, done: BatchDone) -> None:
        """Appends a line."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(msgspec.json.encode(done) + b"\n")
        except OSError:
            pass


def progress_path(settings: ArchiveSettings) -> Path:
    """Returns the path of the progress file: under the root, or in the checkpoint if the root is an object store."""
    if "://" in settings.root and not settings.root.startswith("file://"):
        return Path(settings.checkpoint_location) / "progress.jsonl"
    return Path(settings.root.removeprefix("file://")) / "_progress" / f"{settings.name}.jsonl"
