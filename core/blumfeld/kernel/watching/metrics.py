"""Counts of a node, always on: plain integers that the request path adds to, and that a scrape reads."""

from __future__ import annotations

from collections.abc import Iterator

from blumfeld.spi.hooks import Metric
from blumfeld.spi.transport import Listener


class ApiCounts:
    """Counts of one API's requests."""

    __slots__ = ("request_bytes", "requests", "response_bytes", "time_ms")

    def __init__(self) -> None:
        self.requests = 0
        """Requests that were answered, or ended without an answer."""
        self.time_ms = 0.0
        """Total time from a frame to its answer, waiting included."""
        self.request_bytes = 0
        self.response_bytes = 0


class NodeMetrics:
    """Counts by API and listener, and values that others let us read."""

    def __init__(self) -> None:
        self.apis: dict[int, ApiCounts] = {}
        self.connections: dict[str, int] = {}
        """Open connections, by listener."""
        self.connections_total: dict[str, int] = {}
        """Connections that were accepted since the start, by listener."""
        self._metrics: dict[str, Metric] = {}

    def counts_of(self, key: int) -> ApiCounts:
        """Returns the counts of one API, always the same object, so that a hot path can add to it."""
        counts = self.apis.get(key)
        if counts is None:
            counts = self.apis[key] = ApiCounts()
        return counts

    def opened(self, listener: Listener) -> None:
        """Count an accepted connection."""
        name = listener.name
        self.connections[name] = self.connections.get(name, 0) + 1
        self.connections_total[name] = self.connections_total.get(name, 0) + 1

    def closed(self, listener: Listener) -> None:
        """Count a closed connection."""
        self.connections[listener.name] -= 1

    def add(self, metric: Metric) -> None:
        """Add a metric that is read at each scrape, such as a queue's depth or a plug-in's count.

        :raises ValueError: the name is taken, or no legal one
        """
        if metric.name in self._metrics:
            raise ValueError(f"two metrics are named {metric.name}")
        if not metric.name.isascii() or not metric.name.replace(":", "_").isidentifier():
            raise ValueError(f"{metric.name!r} is no name of a Prometheus metric")
        if metric.kind not in ("counter", "gauge"):
            raise ValueError(f"metric {metric.name} is a {metric.kind!r}, not a counter or a gauge")
        self._metrics[metric.name] = metric

    def values(self) -> Iterator[Metric]:
        """Yields all metrics that were added, by name."""
        for name in sorted(self._metrics):
            yield self._metrics[name]
