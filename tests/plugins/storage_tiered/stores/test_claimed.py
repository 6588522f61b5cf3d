"""No request reaches a store before it is known to be this cluster's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from blumfeld.spi.object_store import (
    ObjectBytes,
    ObjectStore,
    StoreMisconfiguredError,
    StoreUnavailableError,
    local_file,
)
from blumfeld_kit import ObjectStoreContract
from blumfeld_kit.fakes.object_store import SimulatedBucket, SimulatedStore
from blumfeld_kit.fakes.real_time import RealTimeRuntime
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_storage_tiered.stores.checking import MARKER, check_store
from blumfeld_storage_tiered.stores.claimed import ClaimedStore
from tests.plugins.storage_tiered.segments import collect


async def parts() -> AsyncIterator[bytes]:
    """An upload of one part."""
    yield b"x"


CALLS: dict[str, Callable[[ObjectStore], Coroutine[Any, Any, Any]]] = {
    "put": lambda store: store.put("a", b"x"),
    "put_parts": lambda store: store.put_parts("a", parts()),
    "get_range": lambda store: store.get_range("a", 0, 1),
    "local_file": lambda store: local_file(store, "a"),
    "head": lambda store: store.head("a"),
    "list": lambda store: collect(store.list("")),
    "delete": lambda store: store.delete("a"),
}


class Rig:
    """A bucket of the cluster "one", with an object."""

    def __init__(self) -> None:
        self.runtime = FakeRuntime(1)
        self.bucket = SimulatedBucket()
        owner = SimulatedStore(self.runtime, self.bucket)
        self.runtime.run(check_store(self.runtime, owner, "one", "x"))
        self.bucket.put("a", b"theirs", self.runtime)
        self.store = ClaimedStore(self.runtime, SimulatedStore(self.runtime, self.bucket), "x")


@pytest.mark.parametrize("name", CALLS)
def test_a_store_that_comes_back_as_another_clusters_is_left_alone(name: str) -> None:
    rig = Rig()
    rig.bucket.faults.away_until_ms = 1e9
    with pytest.raises(StoreUnavailableError):
        rig.runtime.run(rig.store.claim("two"))
    rig.bucket.faults.heal()
    for _ in range(2):
        with pytest.raises(StoreMisconfiguredError, match="found cluster id one; allowed: two"):
            rig.runtime.run(CALLS[name](rig.store))
    assert (rig.bucket.keys(), rig.bucket.read("a")) == (["a", MARKER], b"theirs")


def test_a_store_that_comes_back_is_checked_once_and_used() -> None:
    rig = Rig()
    rig.bucket.faults.away_until_ms = 1e9
    with pytest.raises(StoreUnavailableError):
        rig.runtime.run(rig.store.claim("one"))
    rig.bucket.faults.heal()
    before = rig.bucket.requests

    async def together() -> list[ObjectBytes]:
        return list(await asyncio.gather(*(rig.store.get_range("a", 0, 9) for _ in range(5))))

    assert rig.runtime.run(together()) == [b"theirs"] * 5
    assert rig.bucket.requests == before + 5 + 5  # two for the marker, three for the probe


def test_a_request_before_the_start_may_be_made_again() -> None:
    rig = Rig()
    with pytest.raises(StoreUnavailableError, match="was not claimed yet"):
        rig.runtime.run(rig.store.head("a"))
    rig.runtime.run(rig.store.claim("one"))
    assert rig.runtime.run(rig.store.head("a")).size_bytes == 6


def test_a_store_that_lost_its_marker_is_ours_no_more_until_it_is_there_again() -> None:
    rig = Rig()
    rig.runtime.run(rig.store.claim("one"))
    rig.runtime.run(rig.store.still_ours())
    marker = rig.bucket.read(MARKER)
    rig.runtime.run(rig.store.delete(MARKER))
    with pytest.raises(StoreUnavailableError, match=f"found no {MARKER}; allowed: .*mount it"):
        rig.runtime.run(rig.store.still_ours())
    rig.bucket.put(MARKER, marker, rig.runtime)
    rig.runtime.run(rig.store.still_ours())


def test_a_store_that_a_node_has_used_is_never_taken_for_a_new_one() -> None:
    """Its folder isn't mounted: what is put there would be hidden later."""
    rig = Rig()

    def restarted(bucket: SimulatedBucket, shown: str = "x") -> ClaimedStore:
        return ClaimedStore(rig.runtime, SimulatedStore(rig.runtime, bucket), shown, "/data/used")

    rig.runtime.run(restarted(rig.bucket).claim("one"))
    empty = SimulatedBucket()
    store = restarted(empty)
    for request in (store.claim("one"), store.put("a", b"x")):
        with pytest.raises(StoreUnavailableError, match=f"found no {MARKER}; allowed: .*mount it"):
            rig.runtime.run(request)
    assert empty.keys() == []
    rig.runtime.run(restarted(rig.bucket).claim("one"))
    rig.runtime.run(restarted(empty, "y").claim("one"))
    assert empty.keys() == [MARKER]


class TestClaimed(ObjectStoreContract):
    virtual_time = lasts = True

    def make_store(self, runtime: FakeRuntime | RealTimeRuntime, name: str) -> ObjectStore:
        store = ClaimedStore(runtime, SimulatedStore(runtime, self._bucket(name)), "x")
        store._is_ours = True  # the marker would be among the objects
        return store

    def _bucket(self, name: str) -> SimulatedBucket:
        buckets: dict[str, SimulatedBucket] = self.__dict__.setdefault("buckets", {})
        return buckets.setdefault(name, SimulatedBucket())
