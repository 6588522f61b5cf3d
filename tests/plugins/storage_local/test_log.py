"""Kafka's directory passes the storage kit, on a simulated disk and on a real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from blumfeld.kernel.runtime.real_files import RealFiles
from blumfeld.spi.storage import LogStorage
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.storage_contract import StorageContract
from blumfeld_kit.storage_contract.random_operations import run_machine
from blumfeld_kit.storage_driver.node import Node
from blumfeld_storage_local.storage import LocalStorage
from tests.plugins.storage_local.local_node import Events


class TestOnASimulatedDisk(StorageContract):
    survives_restart = segment_files = simulated_disk = survives_crash = True

    def make_storage(self, runtime: FakeRuntime) -> LogStorage:
        return LocalStorage(runtime, ["/data", "/more"], Events())


class TestOnARealDisk(StorageContract):
    survives_restart = segment_files = True

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "data"
        self.nodes = self.runtimes = 0

    def make_storage(self, runtime: FakeRuntime) -> LogStorage:
        return LocalStorage(runtime, str(self.path / str(self.nodes)), Events())

    def make_storage_in(self, runtime: FakeRuntime, directory: str) -> LogStorage:
        return LocalStorage(runtime, directory, Events())

    def make_runtime(self, previous: FakeRuntime | None) -> FakeRuntime:
        if previous is None:
            self.nodes += 1
        self.runtimes += 1  # each draws other ids
        return FakeRuntime(self.runtimes, files=RealFiles())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_long_random_life() -> None:
    """The contract's state machine with ten times the examples, each longer."""
    kit = TestOnASimulatedDisk()
    run_machine(
        lambda: Node(kit.make_runtime, kit.make_storage).start(),
        restarts=True,
        faults=True,
        power_cuts=True,
        examples=400,
        steps=50,
    )
