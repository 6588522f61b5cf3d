"""What a coordinator counts: plain integers, added to where a thing happens, read when somebody scrapes."""

from __future__ import annotations


class CoordinatorCounts:
    """Of all shards of one coordinator since the start of the node; a shard that is dropped takes nothing with it."""

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
    )

    def __init__(self) -> None:
        self.records_appended = 0
        self.records_replayed = 0
        """By loads."""
        self.loads_completed = 0
        self.loads_failed = 0
        self.load_last_ms = 0.0
        """From the election to the first command that could be decided; waiting for other loads included."""
        self.load_max_ms = 0.0
        self.shards_dropped = 0
        """After a failed append or commit, or a defect while records were replayed."""
        self.commands_undecided = 0
        """Commands that failed alone, by a defect in deciding."""
        self.offset_commits = 0
        """Offsets, not requests."""
        self.offsets_expired = 0
        self.rebalances_completed = 0

    def loaded(self, took_ms: float) -> None:
        """A shard was loaded."""
        self.loads_completed += 1
        self.load_last_ms = took_ms
        self.load_max_ms = max(self.load_max_ms, took_ms)
