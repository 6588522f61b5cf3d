"""The stores that need no network pass the contract."""

from __future__ import annotations

import pytest

from blumfeld.spi.object_store import ObjectStore
from blumfeld_kit import ObjectStoreContract
from blumfeld_kit.fakes.object_store import SimulatedBucket, SimulatedStore
from blumfeld_kit.fakes.real_time import RealTimeRuntime
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.object_store_contract.kit import OpenStore
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

    def test_the_longest_topic_has_a_place(self, opened: OpenStore) -> None:
        """Its folder has 283 characters, and file systems take names of 255."""
        keys = [f"{letter * 249}-1234567890-{'i' * 22}/{number}.log" for letter in "tu" for number in (1, 2)]
        for key in keys:
            opened.put(key, key.encode())
            assert opened.run(opened.store.head(key)).key == key
        assert [opened.read(key).decode() for key in keys] == keys
        assert opened.listed_keys() == keys
        assert opened.listed_keys("t" * 240) == opened.listed_keys(keys[0][:284]) == keys[:2]
        for key in keys:
            opened.run(opened.store.delete(key))
        assert opened.listed_keys() == []

    def test_a_folder_goes_with_its_last_object(self, opened: OpenStore) -> None:
        for key in ("ticks-0-id/1.log", "ticks-0-id/2.log", "marker"):
            opened.put(key, b"x")
        opened.run(opened.store.delete("ticks-0-id/1.log"))
        assert opened.listed_keys() == ["marker", "ticks-0-id/2.log"]
        opened.run(opened.store.delete("ticks-0-id/2.log"))
        [root] = [path for path in self.folder.iterdir() if path.is_dir()]
        assert [path.name for path in root.iterdir()] == ["marker"]


@needs_ring
class TestMemoryOnTheRing(TestMemory):
    """The same on net_uring's loop, whose wake-ups come through the ring."""

    many_objects = 0

    def make_runtime(self) -> Runtime:
        from blumfeld_net_uring.io_uring.loop import new_loop

        return RealTimeRuntime(new_loop())
