"""Checks that an archive is whole: its ledger, its files, and with ``deep`` every byte and row in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import attrs

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.ledger import rules
from blumfeld_sink_spark.ledger.ledger import COMMITS, Ledger, record_path, stateless
from blumfeld_sink_spark.ledger.query_counts import QueryCounts
from blumfeld_sink_spark.ledger.writers import intents, lease
from blumfeld_sink_spark.ledger.writers.compaction_intent import INTENT, pending
from blumfeld_sink_spark.range_counts import EXPLAINED, HIDDEN, offsets
from blumfeld_sink_spark.records import CommitRecord, FileEntry, OffsetRange
from blumfeld_sink_spark.settings import COMPACTION
from blumfeld_sink_spark.stores.contract import ArchiveStore

TRIES = 5
"""Attempts to read the records and list the files while no writer publishes."""


@attrs.define
class Found:
    """The result of ``verify``: the archive's size, its counts, and all that is wrong."""

    problems: list[str] = attrs.field(factory=list)
    """One line for each problem."""
    records: int = 0
    files: int = 0
    bytes: int = 0
    rows: int = 0
    covered: dict[rules.Partition, tuple[int, int]] = attrs.field(factory=dict)
    """First and last committed offset of each partition, both inclusive, over all queries."""
    counts: QueryCounts = attrs.field(factory=QueryCounts)
    offsets: int = 0
    """Number of offsets in all ranges whose records count them."""
    with_rows: int = 0
    """Messages with a row in any table, ``quarantine`` too."""
    uncounted: list[str] = attrs.field(factory=list)
    """One line for each query with records that count no offsets: older versions wrote them."""
    unexplained: dict[OffsetRange, str] = attrs.field(factory=dict)
    """One line for each range with offsets that its reader passed without a reason."""
    ranges: list[tuple[CommitRecord, OffsetRange]] = attrs.field(factory=list)
    """All committed ranges, each with its record."""

    @property
    def whole(self) -> bool:
        """Returns whether nothing is wrong and every offset is counted and explained."""
        return not (self.problems or self.uncounted or self.unexplained)


def verify(store: ArchiveStore, *, deep: bool = False) -> Found:
    """Reads all records and lists all files; with ``deep`` also reads every file.

    A file that an intent names is no problem: its batch is being published right now.
    """
    # The store has no snapshot. Files of a commit between the two reads would look like files without a record, so both
    # are read again until no record has come in between.
    for _ in range(TRIES):
        verification = Found()
        records = _records(store, verification)
        present = {path for path in store.list("") if is_data(path)}
        if _count(store) == len(records):
            break
    verification.records = len(records)
    verification.problems += rules.problems(records)
    verification.problems += _checkpoints(store, records)
    verification.covered = _covered(records)
    _add_up(records, verification)
    live = _live(records, verification)
    old, new = _compacting(store, verification)
    _files(
        store,
        {path: entry for path, entry in live.items() if path in present or path not in old},
        present,
        verification,
    )
    _orphans(store, live, present - new, verification)
    if deep:
        from blumfeld_sink_spark.ledger.checking.deep import problems

        there = [entry for entry in live.values() if entry.path in present]
        counts = [count for record in records for count in record.counts]
        verification.problems += problems(store, there, _ranges(records), counts)
    return verification


def is_data(path: str) -> bool:
    """Returns whether a path belongs to a table whose files the ledger names. Derived tables have no records."""
    from blumfeld_sink_spark.tables import (
        DERIVED,
        tables,
    )  # here: it imports Arrow, and ``status`` starts without it

    parts = path.split("/")
    return (
        parts[0] in tables()
        and parts[0] not in DERIVED
        and not any(part.startswith(("_", ".")) for part in parts)
    )


def live_files(records: Sequence[CommitRecord]) -> dict[str, FileEntry]:
    """Returns the files that the records add and no record removes, by path."""
    return _live(records, Found())


def _count(store: ArchiveStore) -> int:
    return sum(len(Ledger(store).record_paths(query)) for query in store.folders(COMMITS))


def _records(store: ArchiveStore, verification: Found) -> list[CommitRecord]:
    """Returns the records that can be read, and reports the others."""
    ledger = Ledger(store)
    records = []
    for query in store.folders(COMMITS):
        for path in ledger.record_paths(query):
            try:
                record = ledger.read(path, stateless)
            except (ArchiveError, OSError) as error:
                verification.problems.append(str(error))
                continue
            if path != record_path(record.query, record.batch):
                verification.problems.append(
                    f"{path}: says that it is batch {record.batch} of {record.query}"
                )
            records.append(record)
    return records


def _checkpoints(store: ArchiveStore, records: Sequence[CommitRecord]) -> Iterator[str]:
    """Yields a line for each query whose checkpoint isn't the sum of its records."""
    of_query: dict[str, list[CommitRecord]] = {}
    for record in records:
        of_query.setdefault(record.query, []).append(record)
    ledger = Ledger(store)
    for query, its in of_query.items():
        if wrong := ledger.wrong_checkpoint(query, its):
            yield wrong


def _covered(records: Sequence[CommitRecord]) -> dict[rules.Partition, tuple[int, int]]:
    bounds: dict[rules.Partition, tuple[int, int]] = {}
    for record in records:
        for span in record.ranges:
            first, last = bounds.get((span.topic, span.partition), (span.start, span.end - 1))
            bounds[span.topic, span.partition] = (min(first, span.start), max(last, span.end - 1))
    return dict(sorted(bounds.items()))


def _add_up(records: Sequence[CommitRecord], verification: Found) -> None:
    """Adds up the counts of all records, and reports the offsets that they leave open."""
    from blumfeld_sink_spark.ledger.publishing.planned_counts import unwritten  # here: it imports Arrow

    named = {entry.path: entry for record in records for entry in record.files}
    without: dict[str, list[CommitRecord]] = {}
    for record in records:
        verification.counts = verification.counts.plus(record)
        verification.ranges += [(record, span) for span in record.ranges]
        name = f"batch {record.batch} of query {record.query}"
        if record.counts:
            verification.problems += [f"{name}: {each}" for each in unwritten(record.counts, record.files)]
        elif record.ranges:
            without.setdefault(record.query, []).append(record)
        for count in record.counts:
            verification.offsets += count.end - count.start
            verification.with_rows += count.with_rows
            if hidden := sum(count.skipped.get(reason, 0) for reason in count.skipped.keys() - EXPLAINED):
                taken = OffsetRange(count.topic, count.partition, count.start, count.end)
                verification.unexplained[taken] = (
                    f"{name}: {rules.named(taken)}: {hidden:,} offsets gave no message, and the reader "
                    f"({record.reader or 'unknown'}) shows no reason: {offsets(count.spans, HIDDEN)}"
                )
        verification.problems += [f"{name}: {each}" for each in _other_rows(record, named)]
    verification.uncounted += [_left_open(query, of_it) for query, of_it in without.items()]


def _left_open(query: str, records: Sequence[CommitRecord]) -> str:
    width = sum(span.end - span.start for record in records for span in record.ranges)
    messages = sum(record.messages for record in records)
    return (
        f"query {query}: {len(records):,} batches (the first is {records[0].batch}) are not counted: an older version "
        f"wrote them. They have {width:,} offsets and {messages:,} messages; nothing says what the other "
        f"{width - messages:,} offsets were, nor which messages gave no row"
    )


def _other_rows(record: CommitRecord, named: Mapping[str, FileEntry]) -> Iterator[str]:
    """Yields a line for each table in which a compaction removed more or fewer rows than it added."""
    rows: Counter[str] = Counter()
    for path in record.removed:
        if path in named:
            rows[named[path].table] += named[path].rows
    if not rows:
        return
    rows.subtract({table: count for table, count in _rows_of(record).items() if table in rows})
    for table, left in sorted(rows.items()):
        if left:
            yield f"it takes away {abs(left):,} rows of {table} {'more' if left > 0 else 'fewer'} than it brings"


def _rows_of(record: CommitRecord) -> Counter[str]:
    table_rows: Counter[str] = Counter()
    for entry in record.files:
        table_rows[entry.table] += entry.rows
    return table_rows


def _live(records: Sequence[CommitRecord], verification: Found) -> dict[str, FileEntry]:
    named: dict[str, FileEntry] = {}
    removed: dict[str, CommitRecord] = {}
    for record in records:
        for entry in record.files:
            if entry.path in named:
                verification.problems.append(f"{entry.path}: is named by two records")
            named[entry.path] = entry
        removed.update(dict.fromkeys(record.removed, record))
    verification.problems += [
        f"{path}: is taken away by batch {record.batch} of {record.query}, and no record names it"
        for path, record in removed.items()
        if path not in named
    ]
    return {path: entry for path, entry in sorted(named.items()) if path not in removed}


def _ranges(records: Sequence[CommitRecord]) -> Mapping[rules.Partition, list[OffsetRange]]:
    by_partition: dict[rules.Partition, list[OffsetRange]] = {}
    for record in records:
        for span in record.ranges:
            by_partition.setdefault((span.topic, span.partition), []).append(span)
    return {where: sorted(ranges) for where, ranges in by_partition.items()}


def _files(
    store: ArchiveStore, live: Mapping[str, FileEntry], present: set[str], verification: Found
) -> None:
    from blumfeld_sink_spark.ledger.checking.statistics import misnamed  # here: it imports Arrow

    for path, entry in live.items():
        verification.problems += misnamed(entry)
        if path not in present:
            verification.problems.append(f"{path}: is missing ({entry.rows:,} rows)")
            continue
        size = store.size(path)
        if size != entry.bytes:
            verification.problems.append(f"{path}: has {size:,} bytes, its record says {entry.bytes:,}")
        verification.files += 1
        verification.rows += entry.rows
        verification.bytes += size


def _orphans(
    store: ArchiveStore, live: Mapping[str, FileEntry], present: set[str], verification: Found
) -> None:
    begun = {path for intent in intents.every(store) for path in intent.files}
    for path in sorted(present - live.keys() - begun):
        verification.problems.append(
            f"{path}: is named by no record; readers by glob see its rows. If a commit record was lost, bring it "
            "back; else run vacuum"
        )


def _compacting(store: ArchiveStore, verification: Found) -> tuple[set[str], set[str]]:
    """Returns the paths that a running compaction removes and those that it adds. Any of them may be there or not."""
    intent = pending(store)
    if intent is None:
        return set(), set()
    if not any(held.name == COMPACTION and held.is_live(lease.wall_ms()) for held in lease.every(store)):
        verification.problems.append(f"{INTENT}: a compaction was cut short. Run compact, which ends it")
    return set(intent.record.removed), {entry.path for entry in intent.record.files}


def against_broker(
    covered: Mapping[rules.Partition, tuple[int, int]],
    earliest: Mapping[rules.Partition, int],
    latest: Mapping[rules.Partition, int],
) -> Iterator[tuple[bool, str]]:
    """Compares the archive's offsets with the broker's. Yields (whether it is a problem, a line) for each partition.

    :param covered: first and last archived offset by partition, both inclusive
    :param earliest: the broker's first offsets
    :param latest: the broker's end offsets, exclusive
    """
    for where in sorted({*covered, *latest}):
        name, first, end = f"{where[0]}-{where[1]}", earliest.get(where, 0), latest.get(where)
        if end is None:
            yield True, f"{name}: is archived, and the broker has no such partition"
        elif where not in covered:
            yield first < end, f"{name}: nothing is archived; the broker has {first}..{end}"
        elif covered[where][1] >= end:
            yield (
                True,
                (
                    f"{name}: is archived up to {covered[where][1]}, and ends at {end} on the broker. Was the topic "
                    "made anew? Then archive it under another root"
                ),
            )
        elif covered[where][1] + 1 < first:
            yield (
                True,
                (f"{name}: {covered[where][1] + 1}..{first} isn't archived, and the broker has it no more"),
            )
        else:
            yield False, f"{name}: {end - covered[where][1] - 1:,} offsets behind the broker's end {end}"
