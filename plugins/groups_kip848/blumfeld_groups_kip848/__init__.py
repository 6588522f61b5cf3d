"""Consumer groups by KIP-848: the broker assigns, members converge on it by heartbeats."""

from __future__ import annotations

from blumfeld_groups_kip848.plugin import Plugin

__all__ = ["Plugin"]
