"""What each writer is about to publish: written before the first file is seen, removed after the commit.

Of two queries that want the same offsets at least one sees the other's intent: each writes its own first, then
looks for the others', then for their records.
"""

from __future__ import annotations

import msgspec

from blumfeld_sink_spark.errors import ArchiveError, LedgerConflictError
from blumfeld_sink_spark.ledger import rules
from blumfeld_sink_spark.ledger.ledger import Ledger
from blumfeld_sink_spark.records import CommitRecord, OffsetRange
from blumfeld_sink_spark.stores.contract import ArchiveStore

INTENTS = "_intents"


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """Of one query; there is one batch at a time."""

    query: str
    batch: int
    ranges: tuple[OffsetRange, ...]
    files: dict[str, str]
    """Path → sha256 of what may have been published under this intent."""


def begin(store: ArchiveStore, ledger: Ledger, record: CommitRecord) -> dict[str, str]:
    """Writes the intent of this record. Returns what earlier runs of the batch may have published: path → sha256.

    :raises LedgerConflictError: another query is at these offsets, or has committed them in the meantime
    """
    before = read(store, record.query)
    earlier = dict(before.files) if before is not None and before.batch == record.batch else {}
    files = {entry.path: entry.sha256 for entry in record.files}
    intent = Intent(query=record.query, batch=record.batch, ranges=record.ranges, files={**earlier, **files})
    store.put(_path(record.query), msgspec.json.encode(intent))
    _look_for_others(store, ledger, record)
    ledger.load()
    ledger.check(record)
    return earlier


def end(store: ArchiveStore, query: str) -> None:
    """Removes the intent of a query."""
    store.delete(_path(query))


def read(store: ArchiveStore, query: str) -> Intent | None:
    """The intent of a query, or None.

    :raises ArchiveError: a file that isn't one
    """
    path = _path(query)
    try:
        return msgspec.json.decode(store.read(path), type=Intent)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise ArchiveError(f"{path}: isn't an intent ({error}). Remove it, then run vacuum") from error


def every(store: ArchiveStore) -> list[Intent]:
    """All intents, sorted by query."""
    names = [path.rpartition("/")[2].removesuffix(".json") for path in store.list(INTENTS)]
    return [found for name in names if (found := read(store, name)) is not None]


def _look_for_others(store: ArchiveStore, ledger: Ledger, record: CommitRecord) -> None:
    for other in every(store):
        if other.query == record.query or ledger.find(other.query, other.batch) is not None:
            continue
        covered: dict[rules.Partition, rules.Spans] = {}
        for taken in other.ranges:
            where = (taken.topic, taken.partition)
            covered.setdefault(where, rules.Spans()).add(taken.start, taken.end, other.query)
        if rules.overlap(covered, record.ranges) is not None:
            raise LedgerConflictError(
                f"{store.root}: query {other.query} has begun batch {other.batch} with offsets of batch "
                f"{record.batch} of query {record.query}. Stop one of the two; if that one is gone for good, run "
                f"vacuum, which removes {_path(other.query)}"
            )


def _path(query: str) -> str:
    return f"{INTENTS}/{query}.json"
