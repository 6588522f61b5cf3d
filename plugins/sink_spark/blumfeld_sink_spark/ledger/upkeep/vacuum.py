"""What nobody needs any more: staging of runs that died, files that no record names, old intents."""

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
SKEW_MS = 60_000
"""How far the store's clock may be from ours."""


@attrs.frozen
class Item:
    """A file that may go."""

    path: str
    why: str
    bytes: int
    modified_ms: int


@attrs.define
class Plan:
    """What may go, and what may not yet."""

    items: list[Item]
    writers: list[Held]
    """That are at work. While there is one, only staging that is older than it goes."""


def plan(store: ArchiveStore, *, now_ms: int, older_than_ms: int, ours: frozenset[str] = frozenset()) -> Plan:
    """What may go: untouched for ``older_than_ms``, and surely not of a writer at work.

    :param ours: tokens of leases that the caller holds itself
    :raises ArchiveError: the ledger is gone, so that nothing says which files are the archive's
    """
    writers = [held for held in lease.every(store) if held.is_live(now_ms) and held.owner.token not in ours]
    before_ms = min([now_ms - older_than_ms, *(held.since_ms - SKEW_MS for held in writers)])
    items = list(_staging(store, before_ms))
    if not writers and pending(store) is None:  # what a cut-short compaction has moved is compact's to end
        orphans = list(_orphans(store))
        old = [item for item in orphans if item.modified_ms <= before_ms]
        items += old
        if len(old) == len(orphans):  # an intent is all that knows of its files
            items += _intents(store, before_ms)
    return Plan(items, writers)


def vacuum(store: ArchiveStore, *, now_ms: int, older_than_ms: int) -> Plan:
    """Removes what ``plan`` says, and says what it was. Meanwhile it holds all leases of the archive that nobody else
    holds, so that no known writer starts in the middle.

    :raises ArchiveError: the ledger is gone; nothing was removed
    :raises StoreError: the store is away; what was removed is gone, the rest is there
    """
    with ExitStack() as held:
        ours = set()
        for one in lease.every(store):
            mine = Lease(store, one.name)
            with suppress(LedgerConflictError):
                mine.take()
                held.callback(mine.release)
                ours.add(mine.owner.token)
        found = plan(store, now_ms=now_ms, older_than_ms=older_than_ms, ours=frozenset(ours))
        for item in found.items:
            with suppress(FileNotFoundError):
                if store.modified_ms(item.path) == item.modified_ms:
                    store.delete(item.path)
    return found


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
    """Before its first commit an archive has no file of a table that no intent names.

    :raises ArchiveError: this one has, so its records were lost
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
    """The file, if it is old enough and still there."""
    with suppress(FileNotFoundError):
        modified_ms = store.modified_ms(path)
        if modified_ms <= before_ms:
            yield Item(path, why, store.size(path), modified_ms)
