"""Gauges of this node's groups. They are computed at a scrape; before that, only counters are kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from blumfeld.broker.coordination.shard_metrics import shard_metrics
from blumfeld.coordinator.groups.shard import GroupsShard
from blumfeld.coordinator.runtime.coordinator import Coordinator
from blumfeld.coordinator.runtime.counts import CoordinatorCounts
from blumfeld.spi.hooks import Metric

_COUNTERS: tuple[tuple[str, str, Callable[[CoordinatorCounts], float]], ...] = (
    ("records_appended", "Records that group shards wrote", lambda c: c.records_appended),
    ("records_replayed", "Records that were replayed to load group shards", lambda c: c.records_replayed),
    ("rebalances", "Rebalances that ended in a new assignment", lambda c: c.rebalances_completed),
    ("offset_commits", "Offsets that were committed", lambda c: c.offset_commits),
    ("offsets_expired", "Offsets that were forgotten after their retention", lambda c: c.offsets_expired),
)


def group_metrics(coordinator: Coordinator) -> list[Metric]:
    """Gauges and counters of a node's groups coordinator; only shards that this node leads are seen."""
    counts = coordinator.counts
    counters = [
        Metric(f"blumfeld_group_{name}_total", text, "counter", lambda read=read: read(counts))  # type: ignore[misc]
        for name, text, read in _COUNTERS
    ]
    return [
        *counters,
        *shard_metrics(coordinator, "group"),
        Metric(
            "blumfeld_groups",
            "Groups by type and state",
            "gauge",
            lambda: _groups(coordinator),
            ("type", "state"),
        ),
        Metric(
            "blumfeld_group_offsets",
            "Offsets that groups have committed",
            "gauge",
            lambda: sum(len(shard.offsets) for shard in _loaded(coordinator)),
        ),
        Metric(
            "blumfeld_group_pending_replies",
            "Group requests that wait for a commit, or for other members",
            "gauge",
            lambda: sum(host.pending for host in coordinator.hosts),
        ),
        Metric(
            "blumfeld_group_load_last_seconds",
            "From the election to the end of the load, of the shard that was loaded last",
            "gauge",
            lambda: counts.load_last_ms / 1_000,
        ),
        Metric(
            "blumfeld_group_load_max_seconds",
            "The longest load of a group shard",
            "gauge",
            lambda: counts.load_max_ms / 1_000,
        ),
    ]


def _loaded(coordinator: Coordinator) -> list[GroupsShard]:
    return [shard for shard in coordinator.active() if isinstance(shard, GroupsShard)]


def _groups(coordinator: Coordinator) -> Mapping[tuple[str, ...], float]:
    counts: Counter[tuple[str, ...]] = Counter()
    for shard in _loaded(coordinator):
        counts.update((summary.group_type, summary.state) for summary in shard.summaries())
    return counts
