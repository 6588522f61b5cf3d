"""What keeps the metadata of a cluster of this build, by name."""

from __future__ import annotations

KRAFT, ZOOKEEPER = "kraft", "zookeeper"
CONSENSUS = (KRAFT, ZOOKEEPER)
