"""The fake tiered storage keeps the contract, around logs in memory and on a disk."""

from __future__ import annotations

from typing import cast

from blumfeld.spi.storage import LogStorage
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.fakes.tiered_storage import FakeTieredStorage, tiered_log
from blumfeld_kit.storage_contract import TieringContract
from blumfeld_kit.storage_driver.node import Log
from blumfeld_storage_local.storage import LocalStorage
from blumfeld_storage_memory import MemoryStorage
from tests.plugins.storage_local.local_node import Events


class TestAroundMemory(TieringContract):
    def make_storage(self, runtime: FakeRuntime) -> LogStorage:
        return cast("LogStorage", FakeTieredStorage(MemoryStorage(runtime), runtime))

    def copy(self, log: Log) -> None:
        tiered_log(log.log).copy()


class TestAroundADisk(TestAroundMemory):
    def make_storage(self, runtime: FakeRuntime) -> LogStorage:
        return cast("LogStorage", FakeTieredStorage(LocalStorage(runtime, ["/data"], Events()), runtime))
