"""Metrics that each coordinator of this node has: how its shards are loaded, and what fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from blumfeld.coordinator.runtime.coordinator import Coordinator
from blumfeld.coordinator.runtime.counts import CoordinatorCounts
from blumfeld.coordinator.runtime.host import HostState
from blumfeld.spi.hooks import Metric

_COUNTERS: tuple[tuple[str, str, Callable[[CoordinatorCounts], float]], ...] = (
    ("loads", "{0} shards that were loaded", lambda c: c.loads_completed),
    ("loads_failed", "Loads of {1} shards that failed, and are tried again", lambda c: c.loads_failed),
    ("shards_dropped", "{0} shards that were given up after a failure", lambda c: c.shards_dropped),
    (
        "commands_undecided",
        "{0} requests and timers that failed by a defect of the broker",
        lambda c: c.commands_undecided,
    ),
    (
        "writes_refused",
        "{0} decisions whose records were too large, or had too few replicas in sync",
        lambda c: c.writes_refused,
    ),
)


def shard_metrics(coordinator: Coordinator, kind: str) -> list[Metric]:
    """Counters and a gauge of a coordinator; only shards that this node leads are seen.

    :param kind: ``group`` or ``transaction``
    """
    counts = coordinator.counts
    counters = [
        Metric(
            f"blumfeld_{kind}_{name}_total",
            text.format(kind.capitalize(), kind),
            "counter",
            lambda read=read: read(counts),  # type: ignore[misc]
        )
        for name, text, read in _COUNTERS
    ]
    text = f"{kind.capitalize()} shards by state"
    return [
        *counters,
        Metric(f"blumfeld_{kind}_shards", text, "gauge", lambda: _by_state(coordinator), ("state",)),
    ]


def _by_state(coordinator: Coordinator) -> Mapping[tuple[str, ...], float]:
    shards: Counter[tuple[str, ...]] = Counter({(state.value,): 0 for state in HostState})
    shards.update((host.state.value,) for host in coordinator.hosts)
    return shards
