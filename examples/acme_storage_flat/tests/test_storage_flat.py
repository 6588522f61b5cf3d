"""The contract of a storage, on a simulated disk and on a real one; and what this one refuses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from acme_storage_flat.plugin import Options, Plugin
from acme_storage_flat.storage import FlatStorage

from blumfeld.spi.hooks import CompositionRefused
from blumfeld.spi.storage import LogStorage
from blumfeld_kit import StorageContract
from blumfeld_kit.fakes import FakeRuntime


class TestFlatStorage(StorageContract):
    """Everything that it claims: restarts, a simulated disk with faults and power cuts, a real one with kills."""

    survives_restart = simulated_disk = survives_crash = True

    def make_storage(self, runtime: FakeRuntime) -> LogStorage:
        """On the simulated disk."""
        return FlatStorage(runtime, "/data")

    def make_storage_in(self, runtime: FakeRuntime, directory: str) -> LogStorage:
        """On the real one, to be killed."""
        return FlatStorage(runtime, directory)


def test_two_directories_are_refused() -> None:
    composition: Any = SimpleNamespace(data_dirs=("/a", "/b"), data_dir="/a", options=Options())
    with pytest.raises(CompositionRefused, match="found 2 directories; allowed: one"):
        cast("Any", Plugin()).blumfeld_make_storage(composition)
