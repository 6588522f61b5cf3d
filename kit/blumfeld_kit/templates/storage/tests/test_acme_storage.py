"""The contract of every storage. What a claim of it tries is red until you have written the storage's files."""

from __future__ import annotations

from blumfeld.spi.storage import LogStorage
from blumfeld_kit import StorageContract
from blumfeld_kit.fakes import FakeRuntime

from acme_storage import AcmeStorage


class TestAcmeStorage(StorageContract):
    """All that every storage must hold, and what this one claims beyond. A storage in memory claims nothing."""

    survives_restart = simulated_disk = survives_crash = True

    def make_storage(self, runtime: FakeRuntime) -> LogStorage:
        """Return a new one, on the simulated disk."""
        return AcmeStorage(runtime, "/data")

    def make_storage_in(self, runtime: FakeRuntime, directory: str) -> LogStorage:
        """Return a new one, on the real disk."""
        return AcmeStorage(runtime, directory)
