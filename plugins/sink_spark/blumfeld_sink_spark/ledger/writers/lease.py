"""One writer for each archive root and name.

``_leases/<name>.json`` says who writes and until when. A writer renews it before each batch and while it waits. It is
taken over at once from a process of this host that is dead, never from one that is alive here, however long a busy
machine or a pause kept it from renewing, and from one of another host once it has run out. The lease keeps
two writers from working for nothing; that no record is committed twice doesn't hang on it but on the ledger.
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
"""Without renewal. Longer than the clocks of two hosts may differ, with room for a slow commit."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says."""

    name: str
    owner: Owner
    since_ms: int
    until_ms: int
    """0: given back."""

    def is_live(self, now_ms: int) -> bool:
        """Whether its owner may still be writing."""
        if not self.until_ms or self.owner.is_dead():
            return False
        return now_ms < self.until_ms or self.owner.is_alive()


def wall_ms() -> int:
    """Now, ms since the epoch."""
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
        """Makes this the writer.

        :raises LedgerConflictError: another is; the message says who, since when and what to do
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
        if not self.store.put_if_same(self._path, there, mine):
            raise LedgerConflictError(
                f"{self.store.root}: another writer took {self.name} at this very moment. Run only one"
            )
        self._ours = mine

    def renew(self) -> None:
        """Keeps it. Call it before each commit, and at least every third of the time to live.

        :raises LedgerConflictError: it has run out and another took it: stop writing
        """
        self._replace(self._now_ms() + self._ttl_ms)

    def release(self) -> None:
        """Gives it back, if it still is ours."""
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
    """All leases, whether live or not, sorted by name."""
    found = (_decoded(store.read(path)) for path in store.list(LEASES))
    return [held for held in found if held is not None]


def _decoded(data: bytes) -> Held | None:
    """What a file says; None for one that says nothing, which is nobody's."""
    try:
        return msgspec.json.decode(data, type=Held)
    except msgspec.DecodeError:
        return None
