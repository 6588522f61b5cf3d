"""Spark's checkpoint, read from outside: the archive that it belongs to, and the offsets of each planned batch.

Beside Spark's own files lies ``archive.json``, written before the first batch. It holds the archive's identity and the
offsets at which batch 0 starts; Spark's log has only the end of each batch.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import msgspec

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.records import OffsetRange, Seam
from blumfeld_sink_spark.spark.topics import offset_plans
from blumfeld_sink_spark.spark.topics.offset_plans import Offsets

IDENTITY = "archive.json"


class Identity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query, archive and topics that a checkpoint belongs to."""

    version: int = 1
    query: str
    """Name of the query in the ledger: the archive's name and a unique suffix."""
    name: str
    root: str
    """Full path, or a URL."""
    topics: tuple[str, ...]
    topic_pattern: str
    starting: dict[str, dict[str, int]]
    """Offsets at which batch 0 starts, for every partition that existed then."""
    ending: dict[str, dict[str, int]] | None = None
    """Offsets at which a backfill ends; ``None`` for other queries."""
    seams: tuple[Seam, ...] = ()
    """The batches that this query follows. They are looked up once and kept: batch 0, run again, then finds the same
    gaps, whatever was committed since.
    """


class Checkpoint:
    """A checkpoint in a local folder.

    :raises ArchiveError: (every method) a file can't be read, or isn't a checkpoint of an archive
    """

    def __init__(self, location: str) -> None:
        self.path = Path(location.removeprefix("file://"))

    def identity(self) -> Identity | None:
        """Returns the identity; ``None`` where there is no checkpoint yet."""
        try:
            return msgspec.json.decode((self.path / IDENTITY).read_bytes(), type=Identity)
        except FileNotFoundError:
            pass
        except (OSError, msgspec.DecodeError) as error:
            raise ArchiveError(
                f"{self.path / IDENTITY}: {error}; remove the checkpoint to go on from the ledger"
            ) from error
        if (self.path / "metadata").exists() or (self.path / "offsets").exists():
            raise ArchiveError(
                f"{self.path} is the checkpoint of another Spark query, not of an archive; "
                "give archive.checkpoint a folder of its own"
            )
        return None

    def create(self, identity: Identity) -> None:
        """Writes the identity. When this returns, it is safe against a crash.

        File and folder are synced, because a checkpoint with Spark's files and without identity is refused.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        fresh = self.path / f"{IDENTITY}.{os.getpid()}"
        with fresh.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(identity), indent=1))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path / IDENTITY)
        folder = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def last_planned(self) -> int:
        """Returns the last batch in Spark's offset log; -1 if there is none."""
        return _last(self.path / "offsets")

    def last_done(self) -> int:
        """Returns the last batch in Spark's commit log; -1 if there is none."""
        return _last(self.path / "commits")

    def offsets(self, batch: int) -> Offsets:
        """Returns the offsets at which a batch ends; for batch -1 those at which the query began."""
        if batch < 0:
            identity = self.identity()
            if identity is None:
                raise ArchiveError(
                    f"{self.path / IDENTITY} is gone; remove the checkpoint to go on from the ledger"
                )
            return offset_plans.from_json(identity.starting)
        return parse_offsets(self._log(batch), str(self.path / "offsets" / str(batch)))

    def seams(self) -> tuple[Seam, ...]:
        """Returns the query's seams; empty without an identity."""
        identity = self.identity()
        return identity.seams if identity is not None else ()

    def planned(self, batch: int, fresh: int | None = None) -> tuple[OffsetRange, ...]:
        """Returns the ranges of a batch, from Spark's log.

        :param fresh: see :func:`offset_plans.ranges`
        """
        return offset_plans.ranges(self.offsets(batch - 1), self.offsets(batch), fresh)

    def seconds_since_planned(self, batch: int) -> float:
        """Returns the age of a batch's plan; 0 where its file is gone. For people."""
        try:
            return max(0.0, time.time() - (self.path / "offsets" / str(batch)).stat().st_mtime)
        except OSError:
            return 0.0

    def _log(self, batch: int) -> str:
        try:
            return (self.path / "offsets" / str(batch)).read_text()
        except OSError as error:
            raise ArchiveError(
                f"{self.path}/offsets/{batch} can't be read ({error.strerror}), so what the batch reads is unknown; "
                "remove the checkpoint to go on from the ledger"
            ) from error


def parse_offsets(text: str, name: str) -> Offsets:
    """Returns the offsets in a file of Spark's offset log, which has one source.

    :param name: the file's name for the error
    :raises ArchiveError: it isn't such a file
    """
    lines = text.splitlines()
    try:
        if lines[0] not in ("v1", "v2") or len(lines) < 3:
            raise ValueError(f"{lines[:1]}")
        return offset_plans.from_json(_source(json.loads(lines[2])))
    except (ValueError, IndexError, TypeError, AttributeError) as error:
        raise ArchiveError(f"{name} isn't an offset log of one Kafka source: {error}") from error


def _source(document: Any) -> Any:
    return document


def _last(folder: Path) -> int:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return -1
    return max((int(name) for name in names if name.isdigit()), default=-1)
