"""The simplest storage passes the kit, as a stranger's would."""

from __future__ import annotations

from blumfeld.spi.storage import LogStorage
from blumfeld.testing.fakes.runtime import FakeRuntime
from blumfeld.testing.storage_contract import StorageContract
from blumfeld.testing.storage_memory import MemoryStorage


class TestMemoryStorage(StorageContract):
    def make_storage(self, runtime: FakeRuntime) -> LogStorage:
        return MemoryStorage(runtime)
