"""What a node counts of its ZooKeeper, and the metrics that show it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from blumfeld.spi.hooks import EventLog, Metric


class Counts(msgspec.Struct):
    """Counted since the start of the process, over all sessions and terms."""

    fenced_writes: int = 0
    """Writes of this node's controller that were refused because another controller was elected, or the session was
    over."""
    sessions_expired: int = 0
    unreadable: dict[str, str] = {}
    """Path → why this node can't take what is there: a configuration, an ACL, a token."""

    def unreadable_found(self, events: EventLog, path: str, error: str) -> None:
        """Note a node that can't be taken, and say so unless it was said before."""
        if self.unreadable.get(path) != error:
            self.unreadable[path] = error
            events.error(
                "a node of the tree can't be read: what it sets has no effect until it is mended", error=error
            )


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
        Metric(
            "blumfeld_zookeeper_unreadable_nodes",
            "Configurations, ACLs and tokens in the tree that this node can't read; the log names them",
            "gauge",
            lambda: len(counts.unreadable),
        ),
    )
