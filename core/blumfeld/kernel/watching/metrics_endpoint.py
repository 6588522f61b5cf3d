"""``[metrics] bind``: a separate HTTP port with ``/metrics`` for Prometheus and ``/health`` for a supervisor.

An edge module, imported only where it is on: prometheus-client costs memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from blumfeld.kernel.watching.metrics import NodeMetrics
from blumfeld.spi.hooks import Metric as OwnMetric
from blumfeld.wire.api import API_BY_KEY

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
        given = CounterMetricFamily("blumfeld_response_bytes", "Bytes of responses", labels=["api"])
        for key, counts in sorted(self._metrics.apis.items()):
            api = [API_BY_KEY[key].name if key in API_BY_KEY else str(key)]
            requests.add_metric(api, counts.requests)
            seconds.add_metric(api, counts.time_ms / 1000.0)
            taken.add_metric(api, counts.request_bytes)
            given.add_metric(api, counts.response_bytes)
        yield from (requests, seconds, taken, given)

    def _connection_families(self) -> Iterator[Metric]:
        now = GaugeMetricFamily("blumfeld_connections", "Connections open", labels=["listener"])
        name = "blumfeld_connections_accepted"
        accepted = CounterMetricFamily(name, "Connections accepted", labels=["listener"])
        for listener, count in sorted(self._metrics.connections.items()):
            now.add_metric([listener], count)
            accepted.add_metric([listener], self._metrics.connections_total[listener])
        yield from (now, accepted)


def _samples(metric: OwnMetric) -> Iterable[tuple[tuple[str, ...], float]]:
    read = metric.read()
    return read.items() if isinstance(read, Mapping) else [((), read)]


class MetricsEndpoint:
    """Made → started → stopped."""

    def __init__(self, metrics: NodeMetrics, health: Callable[[], Health]) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_NodeCollector(metrics))
        self._health = health
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
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            status, kind, body = "405 Method Not Allowed", "text/plain", b"only GET and HEAD\n"
        elif path == b"/metrics":
            status, kind, body = "200 OK", CONTENT_TYPE_LATEST, generate_latest(self._registry)
        elif path == b"/health":
            health = self._health()
            status = "200 OK" if health.status == "ok" else "503 Service Unavailable"
            kind, body = "application/json", msgspec.json.encode(health) + b"\n"
        else:
            status, kind, body = "404 Not Found", "text/plain", b"/metrics or /health\n"
        fields = [
            "HTTP/1.1 " + status,
            f"Content-Type: {kind}",
            f"Content-Length: {len(body)}",
            "Connection: close",
        ]
        return "\r\n".join([*fields, "", ""]).encode() + (b"" if method == b"HEAD" else body)
