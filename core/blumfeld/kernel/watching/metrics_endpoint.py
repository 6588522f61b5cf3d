"""``[metrics] bind``: a separate HTTP port with ``/metrics`` and ``/lag`` for Prometheus, ``/health`` for a
supervisor, and ``/build``, the document of the node's plan.

An edge module, imported only where it is on: prometheus-client costs memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from blumfeld.broker.serving.counts import LATENCY_BOUNDS_MS, NodeMetrics
from blumfeld.spi.completion import Steps
from blumfeld.spi.hooks import Metric as OwnMetric
from blumfeld.spi.scheduler import Lane, Scheduler
from blumfeld.wire.api import API_BY_KEY
from blumfeld.wire.errors import BrokerError, known_code

if TYPE_CHECKING:
    from blumfeld.broker.coordination.group_lag import Lags

LATENCY_BOUNDS_S = tuple(bound_ms / 1000.0 for bound_ms in LATENCY_BOUNDS_MS)
REQUEST_BYTES_MAX = 8_192
"""Largest request head. A scraper's has a few hundred bytes."""
REQUEST_TIMEOUT_S = 5.0
_TEXT = "text/plain; charset=utf-8"
CONNECTIONS_MAX = 16
"""Connections that may be open at once. Another one is closed without an answer."""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``/health``: 200 when ``status`` is ``ok``, otherwise 503."""

    status: str
    node_id: int
    cluster_id: str
    partitions_refusing_writes: int


class _NodeFamilies:
    def __init__(self, metrics: NodeMetrics) -> None:
        self._metrics = metrics

    def __iter__(self) -> Iterator[Metric]:
        """Read each metric when its turn comes."""
        yield from self._api_families()
        yield from self._connection_families()
        yield GaugeMetricFamily("blumfeld_tasks", "Tasks of the event loop", len(asyncio.all_tasks()))
        yield from map(_family, self._metrics.values())

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
        errors = CounterMetricFamily(
            "blumfeld_request_errors",
            "Errors in answers, one for each topic, partition or group that has one (Kafka's ErrorsPerSec)",
            labels=["api", "error"],
        )
        for key, counts in sorted(self._metrics.apis.items()):
            api = [API_BY_KEY[key].name if key in API_BY_KEY else str(key)]
            requests.add_metric(api, counts.requests)
            seconds.add_metric(api, counts.time_ms / 1000.0)
            taken.add_metric(api, counts.request_bytes)
            given.add_metric(api, counts.response_bytes)
            latency.add_metric(api, _buckets(LATENCY_BOUNDS_S, counts.latencies()), counts.time_ms / 1000.0)
            for code, times in sorted(counts.errors.items()):
                errors.add_metric([*api, known_code(code).name], times)
        yield from (requests, seconds, taken, given, latency, errors)

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


def _text(families: list[Metric]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(families))
    return generate_latest(registry)


def _buckets(bounds_s: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """Upper bounds in seconds with the durations up to each, as Prometheus has them."""
    return list(zip((*map(str, bounds_s), "+Inf"), accumulate(counts), strict=True))


def _family(metric: OwnMetric) -> Metric:
    labelled = [(dict(zip(metric.labels, labels, strict=True)), value) for labels, value in _samples(metric)]
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, counted in labelled:
            buckets = _buckets(counted.bounds_s, counted.counts)
            histogram.add_metric(list(labels.values()), buckets, counted.total_s)
        return histogram
    if metric.kind == "counter":
        name = metric.name.removesuffix("_total")
        family: Metric = CounterMetricFamily(name, metric.help)
        sample = f"{name}_total"
    else:
        family, sample = GaugeMetricFamily(metric.name, metric.help), metric.name
    for labels, value in sorted(labelled, key=lambda pair: tuple(pair[0].values())):
        family.add_sample(sample, labels, value)
    return family


def _samples(metric: OwnMetric) -> Iterable[tuple[tuple[str, ...], Any]]:
    read = metric.read()
    return read.items() if isinstance(read, Mapping) else [((), read)]


class MetricsEndpoint:
    """Made → started → stopped."""

    def __init__(
        self,
        scheduler: Scheduler,
        metrics: NodeMetrics,
        health: Callable[[], Health],
        group_lags: Callable[[str | None], Awaitable[Lags]],
        plan_json: Callable[[], str],
    ) -> None:
        """:param group_lags: returns the lag of a group; ``None``: of each group that this node coordinates
        :param plan_json: returns the document of the node's plan
        """
        metrics.measure_latencies()
        self._scheduler = scheduler
        self._families = _NodeFamilies(metrics)
        self._health = health
        self._group_lags = group_lags
        self._plan_json = plan_json
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
                writer.write(await self._answer(head))
                await asyncio.wait_for(writer.drain(), REQUEST_TIMEOUT_S)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a client that sends no request in time gets no answer
        finally:
            self._open -= 1
            writer.close()

    async def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path, _, query = rest.partition(b" ")[0].partition(b"?")
        if method not in (b"GET", b"HEAD"):
            status, kind, body = "405 Method Not Allowed", "text/plain", b"only GET and HEAD\n"
        elif path == b"/metrics":
            status, kind, body = "200 OK", CONTENT_TYPE_LATEST, await self._page()
        elif path == b"/health":
            health = self._health()
            status = "200 OK" if health.status == "ok" else "503 Service Unavailable"
            kind, body = "application/json", msgspec.json.encode(health) + b"\n"
        elif path == b"/build":
            status, kind, body = "200 OK", "application/json", self._plan_json().encode() + b"\n"
        elif path == b"/lag":
            status, kind, body = await self._lag(query.decode(errors="replace"))
        else:
            status, kind, body = (
                "404 Not Found",
                "text/plain",
                b"/metrics, /lag, /lag?group=NAME, /health or /build\n",
            )
        fields = [
            "HTTP/1.1 " + status,
            f"Content-Type: {kind}",
            f"Content-Length: {len(body)}",
            "Connection: close",
        ]
        return "\r\n".join([*fields, "", ""]).encode() + (b"" if method == b"HEAD" else body)

    async def _page(self) -> bytes:
        """Returns the page. Each metric is a step: some look at every partition of the node. With 2,000 partitions all
        in one turn took 36 ms, and producers waited.
        """
        return await self._scheduler.completed(Lane.UPKEEP, self._page_in_steps())

    def _page_in_steps(self) -> Steps[bytes]:
        text = b""
        for family in self._families:
            text += _text([family])
            yield None
        return text

    async def _lag(self, query: str) -> tuple[str, str, bytes]:
        """Returns status, content type and body of ``/lag``."""
        names = parse_qs(query, keep_blank_values=True).get("group", [])
        if len(names) > 1 or "" in names or (query and not names):
            return "400 Bad Request", "text/plain", b"/lag takes no or one group: /lag?group=NAME\n"
        name = names[0] if names else None
        try:
            lags = await self._group_lags(name)
        except (OSError, BrokerError) as error:
            text = f"the coordinator of group {name!r} doesn't answer: {error}\n"
            return "503 Service Unavailable", _TEXT, text.encode(errors="replace")
        if name is not None and not lags.groups:
            text = f"group {name!r} has no committed offsets\n"
            return "404 Not Found", _TEXT, text.encode(errors="replace")
        return "200 OK", CONTENT_TYPE_LATEST, _text(_lag_families(lags))


def _lag_families(lags: Lags) -> list[Metric]:
    behind = GaugeMetricFamily(
        "blumfeld_group_lag", "Records up to the high watermark", labels=["group", "topic", "partition"]
    )
    left_out = GaugeMetricFamily(
        "blumfeld_group_lag_partitions_left_out",
        "Partitions with a committed offset whose lag isn't shown: their leader didn't answer, or they are too many",
        labels=["group"],
    )
    for name, lag in lags.groups.items():
        for (topic, partition), records in sorted(lag.by_partition.items()):
            behind.add_metric([name, topic, str(partition)], records)
        left_out.add_metric([name], lag.left_out)
    groups_left_out = GaugeMetricFamily(
        "blumfeld_group_lag_groups_left_out",
        "Groups that are not shown, because there are too many partitions",
    )
    groups_left_out.add_metric([], lags.left_out)
    return [behind, left_out, groups_left_out]
