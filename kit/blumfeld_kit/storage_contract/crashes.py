"""The part of the storage contract about crashes at any file operation: a sample of the points of ``testing.crash``."""

from __future__ import annotations

from blumfeld_kit.crash.points import try_points
from blumfeld_kit.storage_contract.kit import StorageKit
from blumfeld_kit.storage_driver.node import Node

CRASH_POINTS = 60
"""Points of one run, spread over all scripts. ``python -m campaigns crash --storage NAME`` tries all of them."""


class StorageCrashes(StorageKit):
    """The crash part of ``StorageContract``."""

    def test_no_crash_loses_what_was_promised(self, node: Node) -> None:
        """A kill or a power cut at any file operation, also during the recovery, loses nothing that was promised."""
        self.need_crash(node)
        outcome = try_points(self.make_storage, limit=CRASH_POINTS)
        assert outcome.failures == []
        assert outcome.points == CRASH_POINTS
