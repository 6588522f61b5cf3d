"""The storage contract's part about dying at any file operation: some of the points of ``testing.crash``."""

from __future__ import annotations

from blumfeld.testing.crash.points import try_points
from blumfeld.testing.storage_contract.kit import StorageKit
from blumfeld.testing.storage_driver.node import Node

CRASH_POINTS = 60
"""Tried on every run, spread over all scripts; ``python -m campaigns crash --storage NAME`` tries all."""


class StorageCrashes(StorageKit):
    """Part of ``StorageContract``."""

    def test_no_crash_loses_what_was_promised(self, node: Node) -> None:
        """Killed, or its power cut, in the middle of everything that a log may do; and again while it recovers."""
        self.need_crash(node)
        outcome = try_points(self.make_storage, limit=CRASH_POINTS)
        assert outcome.failures == []
        assert outcome.points == CRASH_POINTS
