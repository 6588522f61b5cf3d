"""Replicas that give way to others because they can't be written, and the time of their return. Pure (ADR 0020)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from blumfeld.spi.storage import TopicPartition

PAUSE_MS = 1_000.0
"""Time without trouble after which a replica comes back."""
PAUSE_MS_MAX = 30_000.0
"""The pause doubles up to this when a replica has trouble again soon after it came back. A disk that is nearly full, or
over its quota, would else make leaders change all the time."""
CALM_MS = 60_000.0
"""A replica that is well for so long begins with the shortest pause again."""


class _Trouble(msgspec.Struct):
    last_ms: float
    pause_ms: float = PAUSE_MS
    back_ms: float | None = None
    """Time at which the replica came back; ``None`` while it gives way."""


class TroubledReplicas:
    """The replicas of a node that had trouble a while ago, or have it."""

    def __init__(self) -> None:
        self._troubles: dict[TopicPartition, _Trouble] = {}

    def __len__(self) -> int:
        """Number of replicas that give way."""
        return sum(trouble.back_ms is None for trouble in self._troubles.values())

    @property
    def is_idle(self) -> bool:
        """Whether :meth:`come_back` need not be called."""
        return not self._troubles

    def bad(self, partition: TopicPartition, now_ms: float) -> None:
        """A write of this replica has just failed, or its log can't be used."""
        trouble = self._troubles.get(partition)
        if trouble is None:
            self._troubles[partition] = _Trouble(now_ms)
            return
        if trouble.back_ms is not None:
            trouble.back_ms = None
            trouble.pause_ms = min(2 * trouble.pause_ms, PAUSE_MS_MAX)
        trouble.last_ms = now_ms

    def gives_way(self, partition: TopicPartition) -> bool:
        """Whether the replica gives way now."""
        trouble = self._troubles.get(partition)
        return trouble is not None and trouble.back_ms is None

    def come_back(self, now_ms: float, is_usable: Callable[[TopicPartition], bool]) -> list[TopicPartition]:
        """Returns the replicas that come back now: their pause is over, and they can be written again."""
        back = []
        for partition, trouble in list(self._troubles.items()):
            if trouble.back_ms is not None:
                if now_ms - trouble.back_ms >= CALM_MS:
                    del self._troubles[partition]
            elif now_ms - trouble.last_ms >= trouble.pause_ms and is_usable(partition):
                trouble.back_ms = now_ms
                back.append(partition)
        return back

    def forget(self, partition: TopicPartition) -> None:
        """The replica has left this node."""
        self._troubles.pop(partition, None)
