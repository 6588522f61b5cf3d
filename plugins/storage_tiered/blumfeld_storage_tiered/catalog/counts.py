"""What was done for each topic since the node started: copies, reads, deletions. The work itself counts."""

from __future__ import annotations


class TopicCounts:
    """The counters of one topic."""

    __slots__ = (
        "copied_bytes",
        "copies",
        "copy_errors",
        "delete_errors",
        "deletes",
        "fetch_errors",
        "fetched_bytes",
        "fetches",
        "state_errors",
        "states",
    )

    def __init__(self) -> None:
        self.copies = 0
        """Segments whose copy was begun."""
        self.copied_bytes = 0
        """Bytes of logs whose copy was finished."""
        self.copy_errors = 0
        self.fetches = 0
        self.fetched_bytes = 0
        """Bytes that readers got, from the cache or from the store."""
        self.fetch_errors = 0
        self.deletes = 0
        """Segments whose deletion was begun, or was tried again."""
        self.delete_errors = 0
        self.states = 0
        """States that followers asked for, to begin in the middle of a log."""
        self.state_errors = 0


class Counts:
    """The counters of a node."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicCounts] = {}
        self.expired_fetches = 0
        """Reads that took longer than ``remote.fetch.max.wait.ms``."""

    def of(self, topic: str) -> TopicCounts:
        """Return the counters of a topic."""
        counts = self.topics.get(topic)
        if counts is None:
            counts = self.topics[topic] = TopicCounts()
        return counts

    def forget(self, topic: str) -> None:
        """The topic is deleted."""
        self.topics.pop(topic, None)
