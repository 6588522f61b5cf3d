"""The simplest storage passes the kit, as a stranger's would."""

from __future__ import annotations

from blumfeld.spi.storage import LogStorage
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.storage_contract import StorageContract
from blumfeld_storage_memory import MemoryStorage


class TestMemoryStorage(StorageContract):
    def make_storage(self, runtime: FakeRuntime) -> LogStorage:
        return MemoryStorage(runtime)
