"""The intent of each query: the files and offsets that it is about to publish.

A query writes its intent before a reader can see the first file, and removes it after the commit. If two queries want
the same offsets, at least one of them finds the other's intent or record, because each writes its own intent before it
looks for the other's, and looks for records last.
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
    """The intent of one query, which publishes one batch at a time."""

    query: str
    batch: int
    ranges: tuple[OffsetRange, ...]
    files: dict[str, str]
    """sha256 by path, of the files that may have been published under this intent."""


def begin(store: ArchiveStore, ledger: Ledger, record: CommitRecord) -> dict[str, str]:
    """Writes the intent of this record. Returns the files that earlier runs of the batch may have published: sha256 by
    path.

    :raises LedgerConflictError: another query has begun to publish these offsets, or has committed them meanwhile
    """
    before = read(store, record.query)
    earlier = dict(before.files) if before is not None and before.batch == record.batch else {}
    files = {entry.path: entry.sha256 for entry in record.files}
    # The new intent keeps the files of earlier runs: until this run removes them, nothing else names them.
    intent = Intent(query=record.query, batch=record.batch, ranges=record.ranges, files={**earlier, **files})
    store.put(_path(record.query), msgspec.json.encode(intent))
    # This order lets no overlap through. Another query that wrote its intent before ours is found in the first step.
    # One that wrote it later finds ours. One that has committed and removed its intent is found in the second step.
    _look_for_others(store, ledger, record)
    ledger.load()
    ledger.check(record)
    return earlier


def end(store: ArchiveStore, query: str) -> None:
    """Removes the intent of a query."""
    store.delete(_path(query))


def read(store: ArchiveStore, query: str) -> Intent | None:
    """Returns the intent of a query, or None.

    :raises ArchiveError: the file isn't an intent
    """
    path = _path(query)
    try:
        return msgspec.json.decode(store.read(path), type=Intent)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise ArchiveError(f"{path}: isn't an intent ({error}). Remove it, then run vacuum") from error


def every(store: ArchiveStore) -> list[Intent]:
    """Returns all intents, sorted by query."""
    names = [path.rpartition("/")[2].removesuffix(".json") for path in store.list(INTENTS)]
    return [intent for name in names if (intent := read(store, name)) is not None]


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
