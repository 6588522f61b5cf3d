"""The lag of one group, on demand: a scrape of all groups would have a sample for each group and partition."""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from blumfeld.broker.ports import Hosted
from blumfeld.coordinator.groups.shard import GroupsShard
from blumfeld.coordinator.runtime.coordinator import Coordinator
from blumfeld.coordinator.runtime.host import HostState

PARTITIONS_MAX = 1_000
"""Partitions in one answer, so that it holds the loop for a few ms at most."""


class GroupLag(NamedTuple):
    """The lag of one group, as its coordinator knows it."""

    by_partition: dict[tuple[str, int], int]
    """(topic, partition) → high watermark less committed offset, at least 0. Only partitions that this node leads: the
    ends of the others are on other nodes."""
    left_out: int
    """Partitions with a committed offset that are not in ``by_partition``: led elsewhere, or beyond the bound."""


def group_lag(coordinator: Coordinator, hosted: Hosted, group_id: str) -> GroupLag | None:
    """Returns the lag of a group; ``None`` if this node doesn't coordinate the group, or it has no offsets."""
    host = coordinator.host_of(group_id)
    if host is None or host.state is not HostState.ACTIVE or not isinstance(host.shard, GroupsShard):
        return None
    offsets = host.shard.offsets.of_group(group_id)
    if not offsets:
        return None
    lag: dict[tuple[str, int], int] = {}
    for (topic, index), committed in islice(offsets.items(), PARTITIONS_MAX):
        partition = hosted.find(topic, index)
        if partition is not None and partition.leader is not None:
            lag[topic, index] = max(0, partition.high_watermark - committed.offset)
    return GroupLag(lag, len(offsets) - len(lag))
