"""The ledger: the commit records in the store, and the state of each query after its last record.

Each file ``_commits/<query>/<batch>.json`` is a commit. ``_commits/<query>/checkpoint.json`` sums up all records to one
batch, so that opening reads only the records after it. The checkpoint is derived from the records and may be deleted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import attrs
import msgspec

from blumfeld_sink_spark.errors import ArchiveError, LedgerConflictError, SettingsError
from blumfeld_sink_spark.ledger import rules
from blumfeld_sink_spark.ledger.query_counts import QueryCounts
from blumfeld_sink_spark.ledger.rules import Chain, Partition, Spans
from blumfeld_sink_spark.records import CommitRecord, OffsetRange, Seam
from blumfeld_sink_spark.stores.contract import ArchiveStore

COMMITS = "_commits"
CHECKPOINT = "checkpoint.json"
CHECKPOINT_EVERY = 64
"""Batches between two checkpoints: opening reads at most so many records for a query."""

_QUERY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Stateless(CommitRecord, frozen=True, kw_only=True, rename={"state": "(not read)"}):
    """A record read without its ``state``. The state is most of a record's bytes, and only the state in a query's last
    record is ever used.
    """

    state: dict[str, Any] = msgspec.field(default_factory=dict)


_decode_record = msgspec.json.Decoder(CommitRecord).decode
stateless = msgspec.json.Decoder(Stateless).decode


CHECKPOINT_VERSION = 2
"""A checkpoint of another version is ignored and the records are read again. Version 1 had no sums of counts."""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one query after the record of ``batch``."""

    version: int = CHECKPOINT_VERSION
    query: str
    batch: int
    covered: tuple[OffsetRange, ...]
    ends: tuple[OffsetRange, ...]
    """The offset at which each partition's next range begins; ``start`` equals ``end`` in each. It lies after the
    covered offsets where some were lost.
    """
    counts: QueryCounts = msgspec.field(name="sums")


@attrs.define
class _Query:
    """The state of a query after the records that were read."""

    chain: Chain
    counts: QueryCounts
    last: CommitRecord | None = None
    checkpointed: int = -1


class Ledger:
    """All commits of an archive. An instance is the view of one reader or writer; ``load`` brings it up to date."""

    def __init__(self, store: ArchiveStore) -> None:
        self.store = store
        self._queries: dict[str, _Query] = {}
        self._covered: dict[Partition, Spans] = {}

    def load(self) -> Ledger:
        """Takes the records that were committed since the last ``load``. The first call reads one checkpoint for each
        query and the records after it.

        :raises ArchiveError: a record can't be read
        :raises LedgerConflictError: the records break the rules
        """
        for query in self.store.folders(COMMITS):
            if query not in self._queries:
                self._open(query)
            self._follow(query)
        return self

    def load_some(self) -> Ledger:
        """Calls ``load`` and expects at least one commit.

        :raises ArchiveError: nothing was ever committed
        """
        if not self.load().queries():
            raise nothing_at(self.store.root)
        return self

    def queries(self) -> list[str]:
        """Returns the names of all queries, sorted."""
        return sorted(self._queries)

    def records(self, query: str) -> Iterator[CommitRecord]:
        """Yields all records of a query in order, without their ``state``; reads one at a time.

        :raises ArchiveError: a record can't be read
        """
        for path in self.record_paths(query):
            yield self.read(path, stateless)

    def record_paths(self, query: str) -> list[str]:
        """Returns the paths of a query's records, in order."""
        return [path for path in self.store.list(f"{COMMITS}/{query}") if _is_record(path)]

    def read(self, path: str, decode: Callable[[bytes], CommitRecord] = _decode_record) -> CommitRecord:
        """Returns the record at a path.

        :raises ArchiveError: the file isn't a record, or is a record of another version
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
        """Returns the record of a batch, read from the store, or None."""
        try:
            return self.read(record_path(query, batch))
        except FileNotFoundError:
            return None

    def last(self, query: str) -> CommitRecord | None:
        """Returns the last record of a query as of ``load``, or None if the query has no record."""
        query_state = self._queries.get(query)
        return query_state.last if query_state is not None else None

    def counts(self, query: str) -> QueryCounts:
        """Returns the counts over all records of a query."""
        query_state = self._queries.get(query)
        return query_state.counts if query_state is not None else QueryCounts()

    def check(self, record: CommitRecord) -> None:
        """Checks that this record may be the next one of its query, by the records known since ``load``.

        :raises LedgerConflictError: the record overlaps another, leaves a hole, or isn't the next batch
        :raises SettingsError: the query's name can't name a folder
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
        """Returns the committed offsets of a topic, whichever query committed them; sorted, adjacent ranges joined."""
        ranges: list[OffsetRange] = []
        for (name, partition), spans in sorted(self._covered.items()):
            for span in spans if name == topic else ():
                if ranges and ranges[-1].partition == partition and ranges[-1].end == span.start:
                    ranges[-1] = OffsetRange(topic, partition, ranges[-1].start, span.end)
                else:
                    ranges.append(OffsetRange(topic, partition, span.start, span.end))
        return tuple(ranges)

    def seams(self, starts: Mapping[Partition, int]) -> tuple[Seam, ...]:
        """Returns a seam for each partition that an earlier query left at exactly the offset where a new query starts.

        A seam names the earlier query and the batch whose range ended there. A query counts only if it *ends* at the
        offset. Its records are read from the last one backwards, as far as needed.

        :param starts: the first offset of the new query, by partition
        """
        seams_by_place = {}
        for query, known in self._queries.items():
            wanted = {where for where, start in starts.items() if known.chain.ends.get(where) == start}
            for path in reversed(self.record_paths(query) if wanted else []):
                record = self.read(path, stateless)
                for taken in record.ranges:
                    where = (taken.topic, taken.partition)
                    if where in wanted and taken.end == starts[where]:
                        seams_by_place[where] = Seam(*where, query, record.batch)
                wanted -= seams_by_place.keys()
                if not wanted:
                    break
        return tuple(seams_by_place[where] for where in sorted(seams_by_place))

    def topics(self) -> list[str]:
        """Returns the topics with committed offsets, sorted."""
        return sorted({topic for topic, _ in self._covered})

    def append(self, record: CommitRecord) -> bool:
        """Commits a record: writes it unless its batch has one. Returns False, and changes nothing, if there is one.

        :raises LedgerConflictError: as ``check``
        """
        self.check(record)
        path = record_path(record.query, record.batch)
        if not self.store.put_if_absent(path, msgspec.json.encode(record)):
            return False
        self._take(record)
        if record.batch - self._queries[record.query].checkpointed >= CHECKPOINT_EVERY:
            # The commit stands already. Without a checkpoint opening only takes longer.
            with suppress(OSError):
                self.checkpoint(record.query)
        return True

    def checkpoint(self, query: str) -> None:
        """Writes the checkpoint of a query, as of the last record known here."""
        query_state = self._queries[query]
        point = _summed_up(query_state, self._covered)
        self.store.put(f"{COMMITS}/{query}/{CHECKPOINT}", msgspec.json.encode(point))
        query_state.checkpointed = point.batch

    def wrong_checkpoint(self, query: str, records: Sequence[CommitRecord]) -> str:
        """Returns what is wrong with the checkpoint of a query. Empty if it is right, or if ``load`` won't believe it.

        :param records: all records of the query, in order
        """
        point = self._checkpoint(query)
        if point is None or [record.batch for record in records[: point.batch + 1]] != list(
            range(point.batch + 1)
        ):
            return ""
        known, covered = _Query(Chain(query), QueryCounts()), dict[Partition, Spans]()
        for record in records[: point.batch + 1]:
            rules.advance(known.chain, covered, record)
            known.counts = known.counts.plus(record)
        if point == _summed_up(known, covered):
            return ""
        return (
            f"{COMMITS}/{query}/{CHECKPOINT}: doesn't sum up the records to batch {point.batch}, and writers believe "
            "it. Remove it: it is made again"
        )

    def _open(self, query: str) -> None:
        """Starts a query from its checkpoint, or from nothing where the checkpoint is absent or unusable."""
        known = self._queries[query] = _Query(Chain(query), QueryCounts())
        point = self._checkpoint(query)
        # The records are the truth. A checkpoint whose own record is gone belongs to a ledger that was put back from
        # an older copy; believing it would hide the lost records.
        last = self.find(query, point.batch) if point is not None else None
        if point is None or last is None:
            return
        for taken in point.covered:
            self._covered.setdefault((taken.topic, taken.partition), Spans()).add(
                taken.start, taken.end, query
            )
        ends = {(taken.topic, taken.partition): taken.end for taken in point.ends}
        known.chain = Chain(query, point.batch, ends)
        known.counts, known.last, known.checkpointed = point.counts, last, point.batch

    def _checkpoint(self, query: str) -> Checkpoint | None:
        """Returns the checkpoint of a query; None where it is absent, unreadable or of another version or query."""
        try:
            data = self.store.read(f"{COMMITS}/{query}/{CHECKPOINT}")
            point = msgspec.json.decode(data, type=Checkpoint)
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        return point if (point.version, point.query) == (CHECKPOINT_VERSION, query) else None

    def _follow(self, query: str) -> None:
        """Takes the records after the last known one."""
        while (record := self.find(query, self._queries[query].chain.batch + 1)) is not None:
            self.check(record)
            self._take(record)

    def _take(self, record: CommitRecord) -> None:
        known = self._queries.setdefault(record.query, _Query(Chain(record.query), QueryCounts()))
        rules.advance(known.chain, self._covered, record)
        known.counts = known.counts.plus(record)
        known.last = record


def _summed_up(known: _Query, covered: Mapping[Partition, Spans]) -> Checkpoint:
    query = known.chain.query
    return Checkpoint(
        query=query,
        batch=known.chain.batch,
        covered=tuple(
            OffsetRange(topic, partition, span.start, span.end)
            for (topic, partition), spans in sorted(covered.items())
            for span in spans
            if span.query == query
        ),
        ends=tuple(
            OffsetRange(topic, partition, end, end)
            for (topic, partition), end in sorted(known.chain.ends.items())
        ),
        counts=known.counts,
    )


def nothing_at(root: str) -> ArchiveError:
    """Returns the error of a command that was pointed at a place without an archive."""
    return ArchiveError(f"{root}: no archive is there (no commit record under {COMMITS})")


def record_path(query: str, batch: int) -> str:
    """Returns the path of a batch's record."""
    return f"{COMMITS}/{query}/{batch:010d}.json"


def _is_record(path: str) -> bool:
    name = path.rpartition("/")[2]
    return len(name) == 15 and name[:10].isdigit() and name.endswith(".json")
