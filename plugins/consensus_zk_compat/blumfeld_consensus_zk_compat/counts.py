"""What a node counts of its ZooKeeper, and the metrics that show it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from blumfeld.spi.hooks import Metric


class Counts(msgspec.Struct):
    """Counted since the start of the process, over all sessions and terms."""

    fenced_writes: int = 0
    """Writes of this node's controller that were refused because another controller was elected, or the session was
    over."""
    sessions_expired: int = 0


def metrics(counts: Counts) -> Sequence[Metric]:
    """The metrics of a node. Each scrape reads the counts as they are then."""
    return (
        Metric(
            "blumfeld_zookeeper_fenced_writes_total",
            "Writes of this node's controller that were refused because another controller was elected, or its session "
            "was over",
            "counter",
            lambda: counts.fenced_writes,
        ),
        Metric(
            "blumfeld_zookeeper_sessions_expired_total",
            "Sessions that ended without this node's wish (Kafka's ZooKeeperExpiresPerSec)",
            "counter",
            lambda: counts.sessions_expired,
        ),
    )
