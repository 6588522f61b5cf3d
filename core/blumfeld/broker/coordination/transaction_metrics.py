"""Counters of this node's transaction coordinator, and the plug-in's gauges of its shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from blumfeld.coordinator.runtime.coordinator import Coordinator
from blumfeld.coordinator.runtime.counts import CoordinatorCounts
from blumfeld.coordinator.runtime.host import HostState
from blumfeld.spi.hooks import Metric
from blumfeld.spi.transactions import TransactionCoordinator

_COUNTERS: tuple[tuple[str, str, Callable[[CoordinatorCounts], float]], ...] = (
    ("loads", "Transaction shards that were loaded", lambda c: c.loads_completed),
    (
        "loads_failed",
        "Loads of transaction shards that failed, and are tried again",
        lambda c: c.loads_failed,
    ),
    ("shards_dropped", "Transaction shards that were given up after a failure", lambda c: c.shards_dropped),
    (
        "commands_undecided",
        "Transaction requests and timers that failed by a defect of the broker",
        lambda c: c.commands_undecided,
    ),
    (
        "writes_refused",
        "Transaction decisions whose records were too large, or had too few replicas in sync",
        lambda c: c.writes_refused,
    ),
)


def transaction_metrics(coordinator: Coordinator, plugin: TransactionCoordinator) -> list[Metric]:
    """Gauges and counters of a node's transaction coordinator; only shards that this node leads are seen."""
    counts = coordinator.counts
    counters = [
        Metric(f"blumfeld_transaction_{name}_total", text, "counter", lambda read=read: read(counts))  # type: ignore[misc]
        for name, text, read in _COUNTERS
    ]
    shards = Metric(
        "blumfeld_transaction_shards",
        "Transaction shards by state",
        "gauge",
        lambda: _shards(coordinator),
        ("state",),
    )
    return [*counters, shards, *plugin.metrics(lambda: _active(coordinator))]


def _active(coordinator: Coordinator) -> list[Any]:
    return [host.shard for host in coordinator.hosts if host.state is HostState.ACTIVE]


def _shards(coordinator: Coordinator) -> Mapping[tuple[str, ...], float]:
    found: Counter[tuple[str, ...]] = Counter({(state.value,): 0 for state in HostState})
    found.update((host.state.value,) for host in coordinator.hosts)
    return found
