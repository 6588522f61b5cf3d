"""The contract of an object store, on files of a simulated disk and on real ones; and what a lack of room becomes."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from acme_store_folder.folder import FolderStore

from blumfeld.spi.object_store import ObjectStore, StoreUnavailableError
from blumfeld_kit import ObjectStoreContract
from blumfeld_kit.fakes import FakeRuntime, Fault, RealTimeRuntime


class TestOnASimulatedDisk(ObjectStoreContract):
    """All that every store must hold, on virtual time."""

    virtual_time = lasts = True

    def make_store(self, runtime: FakeRuntime | RealTimeRuntime, name: str) -> ObjectStore:
        return FolderStore(runtime, f"/archive/{name}", ".part")


class TestOnARealDisk(ObjectStoreContract):
    """The same on files of this machine."""

    lasts = True
    many_objects = 100

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def make_store(self, runtime: FakeRuntime | RealTimeRuntime, name: str) -> ObjectStore:
        return FolderStore(runtime, f"{self.folder}/{name}", ".part")


def test_a_full_disk_is_a_store_that_is_unavailable() -> None:
    runtime = FakeRuntime(1)
    store = FolderStore(runtime, "/archive", ".part")
    runtime.disk.inject(Fault(operation="pwritev", times=1, error_number=errno.ENOSPC))
    with pytest.raises(StoreUnavailableError):
        runtime.run(store.put("a", b"x"))
    runtime.run(store.put("a", b"x"))
    assert runtime.run(store.get_range("a", 0, 9)) == b"x"


def test_an_object_that_was_put_survives_a_power_cut() -> None:
    runtime = FakeRuntime(1)
    runtime.run(FolderStore(runtime, "/archive", ".part").put("a/b", b"x"))
    runtime.crash()
    after = FakeRuntime(2, disk=runtime.disk)
    assert after.run(FolderStore(after, "/archive", ".part").get_range("a/b", 0, 9)) == b"x"
