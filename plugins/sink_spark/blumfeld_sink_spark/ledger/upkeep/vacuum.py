"""Removal of files that nothing needs any more: staged files of dead runs, files that no record names, old intents."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress

import attrs

from blumfeld_sink_spark.errors import ArchiveError, LedgerConflictError
from blumfeld_sink_spark.ledger.checking.verify import is_data
from blumfeld_sink_spark.ledger.ledger import Ledger
from blumfeld_sink_spark.ledger.writers import intents, lease
from blumfeld_sink_spark.ledger.writers.compaction_intent import pending
from blumfeld_sink_spark.ledger.writers.lease import Held, Lease
from blumfeld_sink_spark.stores.contract import ArchiveStore

STAGING = "_staging"
FOREVER = 2**63 - 1
"""A time after every file's time, ms."""
SKEW_MS = 60_000
"""Largest expected difference between the store's clock and ours."""


@attrs.frozen
class Item:
    """A file that may be removed."""

    path: str
    why: str
    bytes: int
    modified_ms: int


@attrs.define
class Plan:
    """The files that may be removed, and the writers that hold others back."""

    items: list[Item]
    writers: list[Held]
    """Writers at work. While there is one, only staged files that are older than its lease may be removed."""


def plan(store: ArchiveStore, *, now_ms: int, older_than_ms: int, ours: frozenset[str] = frozenset()) -> Plan:
    """Lists the files that may be removed: untouched for ``older_than_ms``, and surely not used by a writer at work.

    :param ours: tokens of leases that the caller holds itself
    :raises ArchiveError: the ledger is gone, so nothing tells which files belong to the archive
    """
    writers = [held for held in lease.every(store) if held.is_live(now_ms) and held.owner.token not in ours]
    before_ms = min([now_ms - older_than_ms, *(held.since_ms - SKEW_MS for held in writers)])
    items = list(_staging(store, before_ms))
    # A compaction that was cut short has moved files that no record names yet. Only ``compact`` may finish it.
    if not writers and pending(store) is None:
        orphans = list(_orphans(store))
        old = [item for item in orphans if item.modified_ms <= before_ms]
        items += old
        # An intent may be the only thing that names a file. It goes last, when no file is left that it could name.
        if len(old) == len(orphans):
            items += _intents(store, before_ms)
    return Plan(items, writers)


def vacuum(store: ArchiveStore, *, now_ms: int, older_than_ms: int) -> Plan:
    """Removes the files that ``plan`` lists, and returns the plan.

    Meanwhile it holds every lease of the archive that is free, so that no writer with a known name starts.

    :raises ArchiveError: the ledger is gone; nothing was removed
    :raises StoreError: the store is unreachable; some of the files may be removed
    """
    with ExitStack() as held:
        ours = set()
        for writer_lease in lease.every(store):
            mine = Lease(store, writer_lease.name)
            with suppress(LedgerConflictError):
                mine.take()
                held.callback(mine.release)
                ours.add(mine.owner.token)
        vacuum_plan = plan(store, now_ms=now_ms, older_than_ms=older_than_ms, ours=frozenset(ours))
        for item in vacuum_plan.items:
            with suppress(FileNotFoundError):
                # A writer with a new name has no lease that could be held here. It may have replaced the file since.
                if store.modified_ms(item.path) == item.modified_ms:
                    store.delete(item.path)
    return vacuum_plan


def _staging(store: ArchiveStore, before_ms: int) -> Iterator[Item]:
    for path in store.list(STAGING):
        if not path.rpartition("/")[2].startswith("."):
            yield from _item(store, path, "staged by a run that died", before_ms)


def _orphans(store: ArchiveStore) -> Iterator[Item]:
    ledger = Ledger(store).load()
    if not any(ledger.record_paths(query) for query in ledger.queries()):
        _check_lost_ledger(store)
    named: set[str] = set()
    removed: set[str] = set()
    for query in ledger.queries():
        for record in ledger.records(query):
            named.update(entry.path for entry in record.files)
            removed.update(record.removed)
    for path in store.list(""):
        if not is_data(path):
            continue
        if path in removed:
            yield from _item(store, path, "replaced by a compaction")
        elif path not in named:
            yield from _item(store, path, "named by no record")


def _check_lost_ledger(store: ArchiveStore) -> None:
    """Checks that an archive without records has no files of tables, except those that an intent names.

    Without this check a lost ledger would make every file an orphan, and vacuum would remove the whole archive.

    :raises ArchiveError: the archive has such files, so its records were lost
    """
    begun = {path for intent in intents.every(store) for path in intent.files}
    files = [path for path in store.list("") if is_data(path) and path not in begun]
    if files:
        raise ArchiveError(
            f"{store.root}: no commit record is there, and {len(files):,} files of tables are ({files[0]}…): the "
            "folder _commits was lost. Nothing was removed. Bring it back from a copy, or remove the files yourself"
        )


def _intents(store: ArchiveStore, before_ms: int) -> Iterator[Item]:
    for path in store.list(intents.INTENTS):
        yield from _item(store, path, "of a batch that was not published", before_ms)


def _item(store: ArchiveStore, path: str, why: str, before_ms: int = FOREVER) -> Iterator[Item]:
    """Yields the file if it is old enough and still exists."""
    with suppress(FileNotFoundError):
        modified_ms = store.modified_ms(path)
        if modified_ms <= before_ms:
            yield Item(path, why, store.size(path), modified_ms)
