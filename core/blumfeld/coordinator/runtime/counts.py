"""Counts of a coordinator: plain integers that the code adds to, and that a scrape of the metrics reads."""

from __future__ import annotations


class CoordinatorCounts:
    """Counts of all shards of one coordinator since the node's start. Dropping a shard doesn't lower them."""

    __slots__ = (
        "commands_undecided",
        "load_last_ms",
        "load_max_ms",
        "loads_completed",
        "loads_failed",
        "offset_commits",
        "offsets_expired",
        "rebalances_completed",
        "records_appended",
        "records_replayed",
        "shards_dropped",
        "writes_refused",
    )

    def __init__(self) -> None:
        self.records_appended = 0
        self.records_replayed = 0
        """Records that were replayed while shards were loaded."""
        self.loads_completed = 0
        self.loads_failed = 0
        self.load_last_ms = 0.0
        """Time from the election until the shard took commands, including the wait for other loads."""
        self.load_max_ms = 0.0
        self.shards_dropped = 0
        """Shards dropped after a failed append or commit, or a defect during replay."""
        self.commands_undecided = 0
        """Commands that failed because of a defect while they were decided. Their shards were not dropped."""
        self.writes_refused = 0
        """Decisions whose records the log refused: a record was too large, or too few replicas were in sync."""
        self.offset_commits = 0
        """Offsets that were committed, not requests."""
        self.offsets_expired = 0
        self.rebalances_completed = 0

    def loaded(self, took_ms: float) -> None:
        """Count a shard that was loaded in ``took_ms``."""
        self.loads_completed += 1
        self.load_last_ms = took_ms
        self.load_max_ms = max(self.load_max_ms, took_ms)
