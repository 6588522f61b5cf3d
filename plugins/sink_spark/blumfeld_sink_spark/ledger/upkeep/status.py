"""The status of an archive, from its ledger alone: it needs neither Spark nor a broker, and a writer may be at work."""

from __future__ import annotations

from typing import Any

import msgspec

from blumfeld_sink_spark.ledger.checking.verify import live_files
from blumfeld_sink_spark.ledger.ledger import Ledger
from blumfeld_sink_spark.ledger.query_counts import QueryCounts, TableCounts, added
from blumfeld_sink_spark.ledger.writers import intents, lease
from blumfeld_sink_spark.records import OffsetRange
from blumfeld_sink_spark.stores.contract import ArchiveStore

PROGRESS = "_progress"


class QueryStatus(msgspec.Struct, kw_only=True):
    """Status of one query."""

    query: str
    batch: int
    """Number of the last batch."""
    committed_ms: int
    messages: int
    bytes_in: int
    quarantined: int
    gaps: int
    messages_per_s: float
    """Rate of the last batch."""
    seconds: float
    """Duration of the last batch."""


class Status(msgspec.Struct, kw_only=True):
    """Status of an archive."""

    root: str
    queries: list[QueryStatus]
    tables: dict[str, TableCounts]
    """Sums of the files that the records add and no record removes."""
    messages: int
    bytes_in: int
    bytes: int
    ratio: float
    """Bytes of messages for each byte of file; 0 if there is no file."""
    quarantined: int
    passed_over: dict[str, dict[str, int]]
    """Messages without any row, not even in ``quarantine``, by decoder and kind."""
    skipped: dict[str, int]
    """Offsets that gave no message, by reason."""
    uncounted: int
    """Batches whose records count no offsets: older versions wrote them."""
    gaps: int
    covered: list[OffsetRange]
    """Committed ranges of each partition, adjacent ones joined."""
    begun: list[str]
    """Queries with an intent but no record: the batch is being published, or its writer died."""
    writers: list[dict[str, Any]]
    """Holders of live leases: name, host, pid and since_ms."""
    lag: dict[str, dict[str, dict[str, int]]]
    """Offsets that the archive was behind the broker at its last batch, by the archive's name, topic and partition."""


def status(store: ArchiveStore, now_ms: int) -> Status:
    """Reads the ledger's checkpoints and the records after them. Only after a compaction it reads all records.

    :raises ArchiveError: a record can't be read or breaks the rules; ``verify`` says more
    """
    ledger = Ledger(store).load()
    counts = {query: ledger.counts(query) for query in ledger.queries()}
    tables = _tables(ledger, counts)
    total = sum(table.bytes for table in tables.values())
    bytes_in = sum(query_counts.bytes_in for query_counts in counts.values())
    return Status(
        root=store.root,
        queries=[_query(ledger, query) for query in counts if counts[query].batches],
        tables=tables,
        messages=sum(query_counts.messages for query_counts in counts.values()),
        bytes_in=bytes_in,
        bytes=total,
        ratio=bytes_in / total if total else 0.0,
        quarantined=sum(query_counts.quarantined for query_counts in counts.values()),
        passed_over=_by_decoder([query_counts.passed_over for query_counts in counts.values()]),
        skipped=added(*(query_counts.skipped for query_counts in counts.values())),
        uncounted=sum(query_counts.uncounted for query_counts in counts.values()),
        gaps=sum(query_counts.gaps for query_counts in counts.values()),
        covered=[taken for topic in ledger.topics() for taken in ledger.covered(topic)],
        begun=_begun(store, ledger),
        writers=[
            {"name": held.name, "host": held.owner.host.partition("/")[0], "pid": held.owner.pid}
            | {"since_ms": held.since_ms}
            for held in lease.every(store)
            if held.is_live(now_ms)
        ],
        lag=_lag(store),
    )


def _by_decoder(parts: list[dict[str, dict[str, int]]]) -> dict[str, dict[str, int]]:
    decoders = sorted({decoder for part in parts for decoder in part})
    return {decoder: added(*(part.get(decoder, {}) for part in parts)) for decoder in decoders}


def _query(ledger: Ledger, query: str) -> QueryStatus:
    counts, last = ledger.counts(query), ledger.last(query)
    if last is None:
        raise AssertionError(f"{query} has counts and no record")
    return QueryStatus(
        query=query,
        batch=last.batch,
        committed_ms=counts.last_ms,
        messages=counts.messages,
        bytes_in=counts.bytes_in,
        quarantined=counts.quarantined,
        gaps=counts.gaps,
        messages_per_s=last.messages / last.seconds if last.seconds else 0.0,
        seconds=last.seconds,
    )


def _tables(ledger: Ledger, counts: dict[str, QueryCounts]) -> dict[str, TableCounts]:
    if any(query_counts.removed for query_counts in counts.values()):
        records = [record for query in counts for record in ledger.records(query)]
        return _added([*live_files(records).values()])
    return _joined([query_counts.tables for query_counts in counts.values()])


def _added(entries: list[Any]) -> dict[str, TableCounts]:
    return _joined(
        [
            {
                entry.table: TableCounts(
                    files=1, rows=entry.rows, bytes=entry.bytes, ts_min=entry.ts_min, ts_max=entry.ts_max
                )
            }
            for entry in entries
        ]
    )


def _joined(parts: list[dict[str, TableCounts]]) -> dict[str, TableCounts]:
    by_table: dict[str, TableCounts] = {}
    for part in parts:
        for name, more in part.items():
            known = by_table.get(name, TableCounts())
            by_table[name] = TableCounts(
                files=known.files + more.files,
                rows=known.rows + more.rows,
                bytes=known.bytes + more.bytes,
                ts_min=min(known.ts_min or more.ts_min, more.ts_min or known.ts_min),
                ts_max=max(known.ts_max, more.ts_max),
            )
    return dict(sorted(by_table.items()))


def _begun(store: ArchiveStore, ledger: Ledger) -> list[str]:
    return [
        intent.query for intent in intents.every(store) if ledger.find(intent.query, intent.batch) is None
    ]


def _lag(store: ArchiveStore) -> dict[str, dict[str, dict[str, int]]]:
    """Returns the lag in the last complete line of each progress file. They are for people, so an unreadable one is
    skipped.
    """
    lags = {}
    for path in store.list(PROGRESS):
        lines = store.read(path).splitlines()
        for line in reversed(lines[-2:]):
            try:
                lags[path.rpartition("/")[2].removesuffix(".jsonl")] = msgspec.json.decode(line)["lag"]
                break
            except (msgspec.DecodeError, KeyError, TypeError):
                continue
    return lags
