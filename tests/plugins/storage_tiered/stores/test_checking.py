"""A store is checked before a node uses it: reachable, writable, and this cluster's own."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from blumfeld.spi.object_store import StoreDeniedError, StoreMisconfiguredError, StoreUnavailableError
from blumfeld_kit.fakes.object_store import Fate, SimulatedStore
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_storage_tiered.stores.checking import MARKER, check_store
from tests.everyday import for_each

SHOWN = '"s3://ticks/archive"'


class Rig:
    """A store to be checked."""

    def __init__(self) -> None:
        self.runtime = FakeRuntime(1)
        self.store = SimulatedStore(self.runtime)
        self.bucket = self.store.bucket

    def check(self, cluster_id: str = "one", store: Any = None) -> None:
        """Check the store for a cluster."""
        self.runtime.run(check_store(self.runtime, store or self.store, cluster_id, SHOWN))


def test_the_first_node_claims_the_store_and_leaves_nothing_but_the_marker() -> None:
    rig = Rig()
    rig.check()
    assert rig.bucket.keys() == [MARKER]
    assert msgspec.json.decode(rig.bucket.read(MARKER)) == {"cluster_id": "one", "layout_version": 1}


def test_other_nodes_of_the_cluster_and_later_starts_find_it_theirs() -> None:
    rig = Rig()
    for _ in range(3):
        rig.check()
    assert rig.bucket.keys() == [MARKER]


def test_the_store_of_another_cluster_is_refused_with_both_ids() -> None:
    rig = Rig()
    rig.check("one")
    before = rig.bucket.read(MARKER)
    with pytest.raises(
        StoreMisconfiguredError, match=r'"s3://ticks/archive" .*found cluster id one; allowed: two,'
    ):
        rig.check("two")
    assert rig.bucket.read(MARKER) == before


def test_of_two_clusters_at_the_same_time_one_gets_the_store() -> None:
    rig = Rig()
    outcomes: list[str] = []

    async def claim(cluster_id: str) -> None:
        try:
            await check_store(rig.runtime, SimulatedStore(rig.runtime, rig.bucket), cluster_id, SHOWN)
            outcomes.append(cluster_id)
        except StoreMisconfiguredError:
            outcomes.append("refused")

    for cluster_id in ("one", "two"):
        rig.runtime.spawn(claim(cluster_id), cluster_id)
    rig.runtime.advance(60_000)
    assert sorted(outcomes) in (["one", "refused"], ["refused", "two"])


def test_a_layout_of_a_newer_build_is_refused() -> None:
    rig = Rig()
    rig.bucket.put(MARKER, b'{"cluster_id":"one","layout_version":2}', rig.runtime)
    with pytest.raises(StoreMisconfiguredError, match=r"found layout version 2; allowed: up to 1"):
        rig.check()


@for_each([b"", b"{}", b"hello", b"[1]"])
def test_a_marker_that_somebody_else_wrote_is_refused(content: bytes) -> None:
    rig = Rig()
    rig.bucket.put(MARKER, content, rig.runtime)
    with pytest.raises(StoreMisconfiguredError, match=r"blumfeld-cluster.json in .* take another prefix"):
        rig.check()


@for_each([(nth,) for nth in range(1, 5)])
def test_a_store_that_is_away_at_any_request_may_be_checked_again(nth: int) -> None:
    rig = Rig()
    for fate in (Fate.UNAVAILABLE, Fate.LOST_ANSWER):
        rig.bucket.faults.scripted = {rig.bucket.requests + nth: fate}
        try:
            rig.check()
        except StoreUnavailableError:
            rig.check()
    assert MARKER in rig.bucket.keys()  # noqa: SIM118


@for_each([(1, "written"), (2, "written"), (3, "read"), (4, "deleted")])
def test_credentials_that_allow_too_little_are_named_with_what_they_lack(nth: int, lacks: str) -> None:
    rig = Rig()

    class Denied(SimulatedStore):
        async def _request(self, *args: Any) -> Any:
            if self.bucket.requests == nth - 1:
                raise StoreDeniedError("status 403 AccessDenied")
            return await super()._request(*args)

    with pytest.raises(
        StoreDeniedError, match=rf"archive\" can't be {lacks}: found status 403 .*; allowed: a place"
    ):
        rig.check(store=Denied(rig.runtime, rig.bucket))


def test_a_store_that_gives_back_something_else_is_refused() -> None:
    rig = Rig()

    class Liar(SimulatedStore):
        async def get_range(self, key: str, start: int, size: int) -> bytes:
            return b"hello"

    with pytest.raises(
        StoreMisconfiguredError, match="gives back something else than was put: found b'hello'"
    ):
        rig.check(store=Liar(rig.runtime))
