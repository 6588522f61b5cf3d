"""The columns that brokers have no way to serve, by what keeps their metadata, each with the reason."""

from __future__ import annotations

from collections.abc import Mapping

from campaigns.consensus import ZOOKEEPER

NO_FEATURES = (
    "a ZooKeeper has no feature levels, so there is no group.version and no KIP-848, as in Kafka 3.9"
)
NOT_ON_ZOOKEEPER: Mapping[str, str] = {
    "848-": NO_FEATURES,
    "migration": NO_FEATURES,
    "quorum": "a cluster on a ZooKeeper has no metadata quorum",
}
"""Columns by the beginning of their titles."""


def brokers_lack(consensus: str, column: str) -> str:
    """Return why brokers with this consensus can't serve a column; empty if they can."""
    lacking = NOT_ON_ZOOKEEPER if consensus == ZOOKEEPER else {}
    return next((reason for title, reason in lacking.items() if column.startswith(title)), "")
