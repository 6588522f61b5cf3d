"""Spark's checkpoint, read from outside: whose it is, and what its offset log says that a batch reads.

Beside Spark's own files lies ``archive.json``, written before the first batch: what the checkpoint belongs to, and the
offsets that batch 0 starts at, which Spark's log doesn't have.
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
from blumfeld_sink_spark.spark.topics import planning
from blumfeld_sink_spark.spark.topics.planning import Offsets

IDENTITY = "archive.json"


class Identity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a checkpoint belongs to."""

    version: int = 1
    query: str
    """Of the ledger: the archive's name and something unique."""
    name: str
    root: str
    """As a full path, or a URL."""
    topics: tuple[str, ...]
    topic_pattern: str
    starting: dict[str, dict[str, int]]
    """Of every partition that there was."""
    ending: dict[str, dict[str, int]] | None = None
    """Of a backfill."""
    seams: tuple[Seam, ...] = ()
    """Where the query goes on from, found once: batch 0 run again finds the same gaps, whatever was committed since.
    """


class Checkpoint:
    """A checkpoint in a local folder.

    All methods :raise ArchiveError: it can't be read, or isn't what it should be
    """

    def __init__(self, location: str) -> None:
        self.path = Path(location.removeprefix("file://"))

    def identity(self) -> Identity | None:
        """Whose it is; ``None`` where there is no checkpoint yet."""
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
        """Writes the identity, durably. Nothing of Spark's is there yet."""
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
        """The last batch in the offset log; -1 if there is none."""
        return _last(self.path / "offsets")

    def last_done(self) -> int:
        """The last batch in Spark's commit log; -1 if there is none."""
        return _last(self.path / "commits")

    def offsets(self, batch: int) -> Offsets:
        """Where a batch ends; -1 is where the query began."""
        if batch < 0:
            identity = self.identity()
            if identity is None:
                raise ArchiveError(
                    f"{self.path / IDENTITY} is gone; remove the checkpoint to go on from the ledger"
                )
            return planning.from_json(identity.starting)
        return parse_offsets(self._log(batch), str(self.path / "offsets" / str(batch)))

    def seams(self) -> tuple[Seam, ...]:
        """Of the query."""
        identity = self.identity()
        return identity.seams if identity is not None else ()

    def planned(self, batch: int, fresh: int | None = None) -> tuple[OffsetRange, ...]:
        """What a batch reads, from Spark's log.

        :param fresh: see :func:`planning.ranges`
        """
        return planning.ranges(self.offsets(batch - 1), self.offsets(batch), fresh)

    def seconds_since_planned(self, batch: int) -> float:
        """How long ago a batch was planned."""
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
    """The offsets of the only source in a file of Spark's offset log.

    :raises ArchiveError: it isn't such a file
    """
    lines = text.splitlines()
    try:
        if lines[0] not in ("v1", "v2") or len(lines) < 3:
            raise ValueError(f"{lines[:1]}")
        return planning.from_json(_source(json.loads(lines[2])))
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
