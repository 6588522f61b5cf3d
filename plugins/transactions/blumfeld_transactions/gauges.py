"""Gauges of the shards of this node. Each scrape looks at open transactions only, never at all transactional ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from blumfeld.coordinator.runtime.coordinator import Coordinator
from blumfeld.spi.hooks import Metric
from blumfeld.spi.runtime import Runtime
from blumfeld_transactions.shard import TransactionShard


def gauges(coordinator: Coordinator, markers: Callable[[], int], runtime: Runtime) -> list[Metric]:
    """Returns the gauges.

    :param markers: gives the number of markers that are not written yet
    """

    def shards() -> list[TransactionShard]:
        return cast("list[TransactionShard]", coordinator.active())

    def oldest_s() -> float:
        starts = [shard.oldest_started_ms for shard in shards()]
        began = [start for start in starts if start is not None]
        return max(runtime.now_ms() - min(began), 0) / 1_000 if began else 0

    return [
        Metric(
            "blumfeld_transactional_ids",
            "Transactional ids that this node coordinates",
            "gauge",
            lambda: sum(shard.ids for shard in shards()),
        ),
        Metric(
            "blumfeld_transactions_open",
            "Transactions that are open",
            "gauge",
            lambda: sum(shard.open for shard in shards()),
        ),
        Metric(
            "blumfeld_transactions_oldest_open_seconds",
            "Age of the oldest open transaction; 0 without one",
            "gauge",
            oldest_s,
        ),
        Metric(
            "blumfeld_transaction_markers_waiting",
            "Markers that this node has still to write or to send, for transactions whose outcome is decided",
            "gauge",
            markers,
        ),
    ]
