"""The ledger: commit records in the store, and where they leave each query.

``_commits/<query>/<batch>.json`` is a commit. ``_commits/<query>/checkpoint.json`` sums up all records up to one of
them, so that opening reads only those behind it; it is a copy of what the records say, and may be deleted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import attrs
import msgspec

from blumfeld_sink_spark.errors import ArchiveError, LedgerConflictError, SettingsError
from blumfeld_sink_spark.ledger import rules
from blumfeld_sink_spark.ledger.rules import Chain, Partition, Spans
from blumfeld_sink_spark.ledger.sums import Sums
from blumfeld_sink_spark.records import CommitRecord, OffsetRange, Seam
from blumfeld_sink_spark.stores.contract import ArchiveStore

COMMITS = "_commits"
CHECKPOINT = "checkpoint.json"
CHECKPOINT_EVERY = 64
"""Batches: opening reads at most so many records of a query."""

_QUERY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Stateless(CommitRecord, frozen=True, kw_only=True, rename={"state": "(not read)"}):
    """A record without its ``state``, which is most of it, and of which only the last of a query counts."""

    state: dict[str, Any] = msgspec.field(default_factory=dict)


_decode_record = msgspec.json.Decoder(CommitRecord).decode
stateless = msgspec.json.Decoder(Stateless).decode


CHECKPOINT_VERSION = 2
"""Those of version 1 summed up no counts: the records are read again."""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One query up to and with ``batch``."""

    version: int = CHECKPOINT_VERSION
    query: str
    batch: int
    covered: tuple[OffsetRange, ...]
    ends: tuple[OffsetRange, ...]
    """Where partitions go on, which is behind what is covered where something was lost; ``start`` is ``end`` here."""
    sums: Sums


@attrs.define
class _Query:
    """What is known of a query."""

    chain: Chain
    sums: Sums
    last: CommitRecord | None = None
    checkpointed: int = -1


class Ledger:
    """All commits of an archive. One instance is one reader's or writer's view; ``load`` brings it up to date."""

    def __init__(self, store: ArchiveStore) -> None:
        self.store = store
        self._queries: dict[str, _Query] = {}
        self._covered: dict[Partition, Spans] = {}

    def load(self) -> Ledger:
        """Takes what was committed since the last ``load``. Cheap: of each query a checkpoint, and the records
        behind it.

        :raises ArchiveError: a record that can't be read
        :raises LedgerConflictError: records that break the rules
        """
        for query in self.store.folders(COMMITS):
            if query not in self._queries:
                self._open(query)
            self._follow(query)
        return self

    def load_some(self) -> Ledger:
        """``load``, of an archive that there is.

        :raises ArchiveError: nothing was ever committed
        """
        if not self.load().queries():
            raise ArchiveError(f"{self.store.root}: no archive is there (no commit record under {COMMITS})")
        return self

    def queries(self) -> list[str]:
        """Names, sorted."""
        return sorted(self._queries)

    def records(self, query: str) -> Iterator[CommitRecord]:
        """All records of a query in order, read one after the other, without their ``state``.

        :raises ArchiveError: one that can't be read
        """
        for path in self.record_paths(query):
            yield self.read(path, stateless)

    def record_paths(self, query: str) -> list[str]:
        """Paths of a query's records, in order."""
        return [path for path in self.store.list(f"{COMMITS}/{query}") if _is_record(path)]

    def read(self, path: str, decode: Callable[[bytes], CommitRecord] = _decode_record) -> CommitRecord:
        """One record.

        :raises ArchiveError: it isn't one, or of another version
        """
        try:
            record = decode(self.store.read(path))
        except msgspec.DecodeError as error:
            raise ArchiveError(
                f"{path}: isn't a commit record ({error}). Bring it back from a copy, or archive under another root"
            ) from error
        if record.version != 1:
            raise ArchiveError(
                f"{path}: is of version {record.version}, this reads 1. Use a newer blumfeld for this archive"
            )
        return record

    def find(self, query: str, batch: int) -> CommitRecord | None:
        """The record of a batch, read from the store, or None."""
        try:
            return self.read(record_path(query, batch))
        except FileNotFoundError:
            return None

    def last(self, query: str) -> CommitRecord | None:
        """The last record of a query, or None where it has none."""
        found = self._queries.get(query)
        return found.last if found is not None else None

    def sums(self, query: str) -> Sums:
        """What all records of a query come to."""
        found = self._queries.get(query)
        return found.sums if found is not None else Sums()

    def check(self, record: CommitRecord) -> None:
        """Whether this may be the next record of its query, as far as is known since ``load``.

        :raises LedgerConflictError: it overlaps another, leaves a hole, or isn't the next batch
        :raises SettingsError: the query has a name that no folder can have
        """
        if _QUERY.fullmatch(record.query) is None:
            raise SettingsError(
                f"archive.name: {record.query!r} can't name a folder; allowed: letters, digits, '.', '_' and '-'"
            )
        chain = self._queries[record.query].chain if record.query in self._queries else Chain(record.query)
        wrong = rules.follows(chain, record) or rules.overlap(self._covered, record.ranges)
        if wrong is not None:
            raise LedgerConflictError(f"{self.store.root}: {wrong}")

    def covered(self, topic: str) -> tuple[OffsetRange, ...]:
        """What is committed of a topic by whatever query: sorted, joined where it touches."""
        found: list[OffsetRange] = []
        for (name, partition), spans in sorted(self._covered.items()):
            for span in spans if name == topic else ():
                if found and found[-1].partition == partition and found[-1].end == span.start:
                    found[-1] = OffsetRange(topic, partition, found[-1].start, span.end)
                else:
                    found.append(OffsetRange(topic, partition, span.start, span.end))
        return tuple(found)

    def seams(self, starts: Mapping[Partition, int]) -> tuple[Seam, ...]:
        """Of partitions that a new query is to begin at these offsets: the batch of an earlier one that ended just
        there, sorted. Of each query only its end is looked at, and batches back to where it had the partition.
        """
        found = {}
        for query, known in self._queries.items():
            wanted = {where for where, start in starts.items() if known.chain.ends.get(where) == start}
            for path in reversed(self.record_paths(query) if wanted else []):
                record = self.read(path, stateless)
                for taken in record.ranges:
                    where = (taken.topic, taken.partition)
                    if where in wanted and taken.end == starts[where]:
                        found[where] = Seam(*where, query, record.batch)
                wanted -= found.keys()
                if not wanted:
                    break
        return tuple(found[where] for where in sorted(found))

    def topics(self) -> list[str]:
        """Topics with anything committed, sorted."""
        return sorted({topic for topic, _ in self._covered})

    def append(self, record: CommitRecord) -> bool:
        """Commits: puts the record where no other is. False: there is one already, and nothing was changed.

        :raises LedgerConflictError: as ``check``
        """
        self.check(record)
        path = record_path(record.query, record.batch)
        if not self.store.put_if_absent(path, msgspec.json.encode(record)):
            return False
        self._take(record)
        if record.batch - self._queries[record.query].checkpointed >= CHECKPOINT_EVERY:
            with suppress(OSError):  # without it opening takes longer, no more
                self.checkpoint(record.query)
        return True

    def checkpoint(self, query: str) -> None:
        """Sums up the records of a query."""
        found = self._queries[query]
        point = Checkpoint(
            query=query,
            batch=found.chain.batch,
            covered=tuple(
                OffsetRange(topic, partition, span.start, span.end)
                for (topic, partition), spans in sorted(self._covered.items())
                for span in spans
                if span.query == query
            ),
            ends=tuple(
                OffsetRange(topic, partition, end, end)
                for (topic, partition), end in sorted(found.chain.ends.items())
            ),
            sums=found.sums,
        )
        self.store.put(f"{COMMITS}/{query}/{CHECKPOINT}", msgspec.json.encode(point))
        found.checkpointed = point.batch

    def _open(self, query: str) -> None:
        """Takes a query's checkpoint, if it is worth anything."""
        known = self._queries[query] = _Query(Chain(query), Sums())
        try:
            data = self.store.read(f"{COMMITS}/{query}/{CHECKPOINT}")
            point = msgspec.json.decode(data, type=Checkpoint)
        except (FileNotFoundError, msgspec.DecodeError):
            return
        last = self.find(query, point.batch)
        if point.version != CHECKPOINT_VERSION or point.query != query or last is None:
            return
        for taken in point.covered:
            self._covered.setdefault((taken.topic, taken.partition), Spans()).add(
                taken.start, taken.end, query
            )
        ends = {(taken.topic, taken.partition): taken.end for taken in point.ends}
        known.chain = Chain(query, point.batch, ends)
        known.sums, known.last, known.checkpointed = point.sums, last, point.batch

    def _follow(self, query: str) -> None:
        """Takes the records behind the last that is known."""
        while (record := self.find(query, self._queries[query].chain.batch + 1)) is not None:
            self.check(record)
            self._take(record)

    def _take(self, record: CommitRecord) -> None:
        known = self._queries.setdefault(record.query, _Query(Chain(record.query), Sums()))
        rules.advance(known.chain, self._covered, record)
        known.sums = known.sums.plus(record)
        known.last = record


def record_path(query: str, batch: int) -> str:
    """Where the record of a batch lies."""
    return f"{COMMITS}/{query}/{batch:010d}.json"


def _is_record(path: str) -> bool:
    name = path.rpartition("/")[2]
    return len(name) == 15 and name[:10].isdigit() and name.endswith(".json")
