"""The stores that need no network pass the contract."""

from __future__ import annotations

import pytest

from blumfeld.spi.object_store import ObjectStore
from blumfeld_kit import ObjectStoreContract
from blumfeld_kit.fakes.object_store import SimulatedBucket, SimulatedStore
from blumfeld_kit.fakes.real_time import RealTimeRuntime
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_storage_tiered.stores.opening import open_store
from blumfeld_storage_tiered.stores.options import StoreOptions
from tests.plugins.net_uring.ring_tools import needs_ring

Runtime = FakeRuntime | RealTimeRuntime


class TestSimulated(ObjectStoreContract):
    virtual_time = lasts = True

    def make_store(self, runtime: Runtime, name: str) -> ObjectStore:
        buckets = self.__dict__.setdefault("buckets", {})
        return SimulatedStore(runtime, buckets.setdefault(name, SimulatedBucket()))


class TestSimulatedThatListsLate(TestSimulated):
    list_lag_ms = 2000

    def make_store(self, runtime: Runtime, name: str) -> ObjectStore:
        store = super().make_store(runtime, name)
        assert isinstance(store, SimulatedStore)
        store.bucket.faults.stale_list_ms = self.list_lag_ms
        return store

    test_an_upload_replaces_the_object_when_its_last_part_is_in = None  # type: ignore[assignment]  # it lists at once


class TestMemory(ObjectStoreContract):
    def make_store(self, runtime: Runtime, name: str) -> ObjectStore:
        return open_store("memory://", runtime, StoreOptions(), {})


class TestFile(ObjectStoreContract):
    lasts = True
    many_objects = 120  # each is synced; LocalStore has no pages

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        self.folder = tmp_path_factory.mktemp("store")

    def make_store(self, runtime: Runtime, name: str) -> ObjectStore:
        return open_store(f"file://{self.folder}/{name}", runtime, StoreOptions(), {})


@needs_ring
class TestMemoryOnTheRing(TestMemory):
    """The same on net_uring's loop, whose wake-ups come through the ring."""

    many_objects = 0

    def make_runtime(self) -> Runtime:
        from blumfeld_net_uring.io_uring.loop import new_loop

        return RealTimeRuntime(new_loop())
