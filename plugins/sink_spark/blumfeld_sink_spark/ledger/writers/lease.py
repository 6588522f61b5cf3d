"""The lease: at most one writer for each archive root and name.

The file ``_leases/<name>.json`` names the writer and the time at which the lease runs out. A writer renews it before
each batch and while it waits. Another process may take the lease over:

* at once, if the writer's process ran on this host and is dead;
* after the lease has run out, if the writer's process runs on another host;
* never, while the writer's process lives on this host: a busy machine or a pause may keep it from renewing for long.

The lease only spares two writers useless work. The ledger, not the lease, keeps offsets from being committed twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from blumfeld_sink_spark.errors import LedgerConflictError
from blumfeld_sink_spark.ledger.writers.owner import Owner
from blumfeld_sink_spark.stores.contract import ArchiveStore

LEASES = "_leases"
TTL_MS = 60_000
"""Time to live without renewal. It is longer than two hosts' clocks may differ, with room for a slow commit."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Content of a lease file."""

    name: str
    owner: Owner
    since_ms: int
    until_ms: int
    """Wall-clock time at which the lease runs out; 0 once its owner has released it."""

    def is_live(self, now_ms: int) -> bool:
        """Returns whether the owner may still be writing."""
        if not self.until_ms or self.owner.is_dead():
            return False
        # A suspended machine or a long pause outlasts the time to live, and the owner goes on where it was. The clock
        # alone would give the lease away under it.
        return now_ms < self.until_ms or self.owner.is_alive()


def wall_ms() -> int:
    """Returns the wall-clock time, ms since the epoch."""
    return time.time_ns() // 1_000_000


class Lease:
    """A writer's claim on a name. Not for several threads."""

    def __init__(
        self,
        store: ArchiveStore,
        name: str,
        owner: Owner | None = None,
        *,
        ttl_ms: int = TTL_MS,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self.store = store
        self.name = name
        self.owner = owner or Owner.here()
        self._ttl_ms = ttl_ms
        self._now_ms = now_ms
        self._ours: bytes | None = None
        self._since_ms = 0

    def take(self) -> None:
        """Takes the lease.

        :raises LedgerConflictError: another writer has it; the message names its process and says since when it writes
            and what to do
        """
        now_ms = self._now_ms()
        self._since_ms = now_ms
        mine = self._encoded(now_ms + self._ttl_ms)
        if self.store.put_if_absent(self._path, mine):
            self._ours = mine
            return
        there = self.store.read(self._path)
        held = _decoded(there)
        if held is not None and held.is_live(now_ms):
            raise LedgerConflictError(self._refusal(held, now_ms))
        # Several writers may find the same dead owner. Only one can replace exactly the file that it read.
        if not self.store.put_if_same(self._path, there, mine):
            raise LedgerConflictError(
                f"{self.store.root}: another writer took {self.name} at this very moment. Run only one"
            )
        self._ours = mine

    def renew(self) -> None:
        """Extends the lease. The writer calls this before each commit, and at least every third of the time to live.

        :raises LedgerConflictError: the lease ran out and another writer took it; this one must stop
        """
        self._replace(self._now_ms() + self._ttl_ms)

    def release(self) -> None:
        """Releases the lease if this writer still has it."""
        if self._ours is None:
            return
        try:
            self._replace(0)
        except LedgerConflictError:
            return
        finally:
            self._ours = None

    def __enter__(self) -> Lease:
        self.take()
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    @property
    def _path(self) -> str:
        return f"{LEASES}/{self.name}.json"

    def _replace(self, until_ms: int) -> None:
        new = self._encoded(until_ms)
        if self._ours is None or not self.store.put_if_same(self._path, self._ours, new):
            self._ours = None
            raise LedgerConflictError(
                f"{self.store.root}: the lease of {self.name} is no longer ours: it ran out, and another writer took "
                "it. Nothing was published; run only one, or give the second another name"
            )
        self._ours = new

    def _encoded(self, until_ms: int) -> bytes:
        held = Held(name=self.name, owner=self.owner, since_ms=self._since_ms, until_ms=until_ms)
        return msgspec.json.encode(held)

    def _refusal(self, held: Held, now_ms: int) -> str:
        since = datetime.fromtimestamp(held.since_ms / 1000, UTC).isoformat(" ", "seconds")
        return (
            f"{self.store.root}: {self.name} is being written by {held.owner} since {since}. Stop it, or, if its host "
            f"is gone, wait {max(1, (held.until_ms - now_ms) // 1000)} s; another set of topics takes another --name"
        )


def every(store: ArchiveStore) -> list[Held]:
    """Returns all leases, live or not, sorted by name."""
    leases = (_decoded(store.read(path)) for path in store.list(LEASES))
    return [held for held in leases if held is not None]


def _decoded(data: bytes) -> Held | None:
    """Returns the content of a lease file. A damaged file has no owner: the result is None."""
    try:
        return msgspec.json.decode(data, type=Held)
    except msgspec.DecodeError:
        return None
