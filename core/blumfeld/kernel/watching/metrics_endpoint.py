"""``[metrics] bind``: a separate HTTP port with ``/metrics`` and ``/lag?group=NAME`` for Prometheus, and ``/health``
for a supervisor.

An edge module, imported only where it is on: prometheus-client costs memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from blumfeld.kernel.watching.metrics import LATENCY_BOUNDS_MS, ApiCounts, NodeMetrics
from blumfeld.spi.hooks import Metric as OwnMetric
from blumfeld.wire.api import API_BY_KEY

if TYPE_CHECKING:
    from blumfeld.broker.coordination.group_lag import GroupLag

REQUEST_BYTES_MAX = 8_192
"""Largest request head. A scraper's has a few hundred bytes."""
REQUEST_TIMEOUT_S = 5.0
CONNECTIONS_MAX = 16
"""Connections that may be open at once. Another one is closed without an answer."""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``/health``: 200 when ``status`` is ``ok``, otherwise 503."""

    status: str
    node_id: int
    cluster_id: str


class _NodeCollector(Collector):
    def __init__(self, metrics: NodeMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Read all metrics now."""
        yield from self._api_families()
        yield from self._connection_families()
        yield GaugeMetricFamily("blumfeld_tasks", "Tasks of the event loop", len(asyncio.all_tasks()))
        for metric in self._metrics.values():
            if metric.kind == "counter":
                family: Metric = CounterMetricFamily(metric.name.removesuffix("_total"), metric.help)
            else:
                family = GaugeMetricFamily(metric.name, metric.help)
            sample = metric.name if metric.kind == "gauge" else metric.name.removesuffix("_total") + "_total"
            for labels, value in sorted(_samples(metric)):
                family.add_sample(sample, dict(zip(metric.labels, labels, strict=True)), value)
            yield family

    def _api_families(self) -> Iterator[Metric]:
        requests = CounterMetricFamily("blumfeld_requests", "Requests done", labels=["api"])
        seconds = CounterMetricFamily("blumfeld_request_seconds", "From frame to answer", labels=["api"])
        taken = CounterMetricFamily("blumfeld_request_bytes", "Bytes of requests", labels=["api"])
        latency = HistogramMetricFamily(
            "blumfeld_request_latency_seconds",
            "Requests by the time from frame to answer, waiting included (Kafka's TotalTimeMs)",
            labels=["api"],
        )
        given = CounterMetricFamily("blumfeld_response_bytes", "Bytes of responses", labels=["api"])
        for key, counts in sorted(self._metrics.apis.items()):
            api = [API_BY_KEY[key].name if key in API_BY_KEY else str(key)]
            requests.add_metric(api, counts.requests)
            seconds.add_metric(api, counts.time_ms / 1000.0)
            taken.add_metric(api, counts.request_bytes)
            given.add_metric(api, counts.response_bytes)
            latency.add_metric(api, _buckets(counts), counts.time_ms / 1000.0)
        yield from (requests, seconds, taken, given, latency)

    def _connection_families(self) -> Iterator[Metric]:
        now = GaugeMetricFamily("blumfeld_connections", "Connections open", labels=["listener"])
        name = "blumfeld_connections_accepted"
        accepted = CounterMetricFamily(name, "Connections accepted", labels=["listener"])
        for listener, count in sorted(self._metrics.connections.items()):
            now.add_metric([listener], count)
            accepted.add_metric([listener], self._metrics.connections_total[listener])
        yield from (now, accepted)


class _Families(Collector):
    """Families that were made for one answer."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        """Returns the families."""
        return self._families


def _buckets(counts: ApiCounts) -> list[tuple[str, float]]:
    """Upper bounds in seconds with the requests up to each, as Prometheus has them."""
    bounds = (*(str(bound_ms / 1000.0) for bound_ms in LATENCY_BOUNDS_MS), "+Inf")
    return list(zip(bounds, accumulate(counts.latencies()), strict=True))


def _samples(metric: OwnMetric) -> Iterable[tuple[tuple[str, ...], float]]:
    read = metric.read()
    return read.items() if isinstance(read, Mapping) else [((), read)]


class MetricsEndpoint:
    """Made → started → stopped."""

    def __init__(
        self,
        metrics: NodeMetrics,
        health: Callable[[], Health],
        group_lag: Callable[[str], GroupLag | None] = lambda group_id: None,
    ) -> None:
        """:param group_lag: returns the lag of a group, or ``None`` if the node doesn't know it"""
        metrics.measure_latencies()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_NodeCollector(metrics))
        self._health = health
        self._group_lag = group_lag
        self._server: asyncio.Server | None = None
        self._open = 0

    async def start(self, host: str, port: int) -> int:
        """Listen. Returns the port. Raises ``OSError``."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=REQUEST_BYTES_MAX)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Close the port. Legal without start."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= CONNECTIONS_MAX:
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), REQUEST_TIMEOUT_S)
                writer.write(self._answer(head))
                await asyncio.wait_for(writer.drain(), REQUEST_TIMEOUT_S)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a client that sends no request in time gets no answer
        finally:
            self._open -= 1
            writer.close()

    def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path, _, query = rest.partition(b" ")[0].partition(b"?")
        if method not in (b"GET", b"HEAD"):
            status, kind, body = "405 Method Not Allowed", "text/plain", b"only GET and HEAD\n"
        elif path == b"/metrics":
            status, kind, body = "200 OK", CONTENT_TYPE_LATEST, generate_latest(self._registry)
        elif path == b"/health":
            health = self._health()
            status = "200 OK" if health.status == "ok" else "503 Service Unavailable"
            kind, body = "application/json", msgspec.json.encode(health) + b"\n"
        elif path == b"/lag":
            status, kind, body = self._lag(query.decode(errors="replace"))
        else:
            status, kind, body = "404 Not Found", "text/plain", b"/metrics, /lag?group=NAME or /health\n"
        fields = [
            "HTTP/1.1 " + status,
            f"Content-Type: {kind}",
            f"Content-Length: {len(body)}",
            "Connection: close",
        ]
        return "\r\n".join([*fields, "", ""]).encode() + (b"" if method == b"HEAD" else body)

    def _lag(self, query: str) -> tuple[str, str, bytes]:
        """Returns status, content type and body of ``/lag``."""
        names = parse_qs(query).get("group", [])
        if len(names) != 1:
            return "400 Bad Request", "text/plain", b"/lag takes one group: /lag?group=NAME\n"
        lag = self._group_lag(names[0])
        if lag is None:
            text = f"group {names[0]!r} has no committed offsets here; ask the node that coordinates it\n"
            return "404 Not Found", "text/plain; charset=utf-8", text.encode(errors="replace")
        behind = GaugeMetricFamily(
            "blumfeld_group_lag", "Records up to the high watermark", labels=["group", "topic", "partition"]
        )
        for (topic, partition), records in sorted(lag.by_partition.items()):
            behind.add_metric([names[0], topic, str(partition)], records)
        left_out = GaugeMetricFamily(
            "blumfeld_group_lag_partitions_left_out",
            "Partitions with a committed offset whose lag this node doesn't know or show",
            labels=["group"],
        )
        left_out.add_metric([names[0]], lag.left_out)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Families([behind, left_out]))
        return "200 OK", CONTENT_TYPE_LATEST, generate_latest(registry)
