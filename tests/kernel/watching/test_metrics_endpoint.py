"""The Prometheus and health port, spoken to over a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from blumfeld.kernel.watching.metrics import NodeMetrics
from blumfeld.kernel.watching.metrics_endpoint import REQUEST_BYTES_MAX, Health, MetricsEndpoint
from blumfeld.spi.hooks import Metric
from blumfeld.spi.transport import Listener

LISTENER = Listener(name="PLAINTEXT", kind="broker", host="127.0.0.1", port=9092)


async def ask(port: int, request: bytes) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.decode()


def with_endpoint(metrics: NodeMetrics, status: str, body: Callable[[int], Awaitable[None]]) -> None:
    async def main() -> None:
        endpoint = MetricsEndpoint(metrics, lambda: Health(status=status, node_id=3, cluster_id="c"))
        port = await endpoint.start("127.0.0.1", 0)
        try:
            await body(port)
        finally:
            await endpoint.stop()
            await endpoint.stop()

    asyncio.run(main())


def test_a_scrape_shows_what_was_counted() -> None:
    metrics = NodeMetrics()
    counts = metrics.counts_of(0)
    counts.requests, counts.time_ms = 2, 2.0
    counts.request_bytes, counts.response_bytes = 2000, 100
    metrics.opened(LISTENER)
    metrics.opened(LISTENER)
    metrics.closed(LISTENER)
    metrics.add(Metric("blumfeld_parked_requests", "Parked", "gauge", lambda: 4.0))
    metrics.add(Metric("blumfeld_log_flush_seconds_total", "Flushing", "counter", lambda: 2.5))

    async def body(port: int) -> None:
        text = await ask(port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert text.startswith("HTTP/1.1 200 OK\r\n")
        for line in (
            'blumfeld_requests_total{api="Produce"} 2.0',
            'blumfeld_request_seconds_total{api="Produce"} 0.002',
            'blumfeld_request_bytes_total{api="Produce"} 2000.0',
            'blumfeld_response_bytes_total{api="Produce"} 100.0',
            'blumfeld_connections{listener="PLAINTEXT"} 1.0',
            'blumfeld_connections_accepted_total{listener="PLAINTEXT"} 2.0',
            "blumfeld_tasks 2.0",
            "blumfeld_parked_requests 4.0",
            "blumfeld_log_flush_seconds_total 2.5",
        ):
            assert line in text.splitlines(), line

    with_endpoint(metrics, "ok", body)


@pytest.mark.parametrize(("status", "code"), [("ok", 200), ("starting", 503), ("stopping", 503)])
def test_health_says_whether_the_node_serves(status: str, code: int) -> None:
    async def body(port: int) -> None:
        text = await ask(port, b"GET /health HTTP/1.0\r\n\r\n")
        assert text.startswith(f"HTTP/1.1 {code} ")
        assert text.endswith(f'{{"status":"{status}","node_id":3,"cluster_id":"c"}}\n')

    with_endpoint(NodeMetrics(), status, body)


@pytest.mark.parametrize(
    ("request_bytes", "answer"),
    [
        (b"GET /else HTTP/1.1\r\n\r\n", "HTTP/1.1 404 "),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 "),
        (b"\x00\x00\x00\r\n\r\n", "HTTP/1.1 405 "),
        (b"GET /" + b"x" * (REQUEST_BYTES_MAX * 3), ""),
    ],
)
def test_other_requests_are_refused(request_bytes: bytes, answer: str) -> None:
    async def body(port: int) -> None:
        try:
            text = await ask(port, request_bytes)
        except ConnectionError:
            text = ""
        assert text.startswith(answer)
        assert bool(text) == bool(answer)
        assert "200 OK" in await ask(port, b"HEAD /health HTTP/1.1\r\n\r\n")

    with_endpoint(NodeMetrics(), "ok", body)


@pytest.mark.parametrize(
    ("metric", "complaint"),
    [
        (Metric("blumfeld_parked_requests", "", "gauge", lambda: 0), "two metrics are named"),
        (Metric("with space", "", "gauge", lambda: 0), "no name of a Prometheus metric"),
        (Metric("fine", "", "histogram", lambda: 0), "not a counter or a gauge"),
    ],
)
def test_a_metric_that_cannot_be_shown_is_refused(metric: Metric, complaint: str) -> None:
    metrics = NodeMetrics()
    metrics.add(Metric("blumfeld_parked_requests", "", "gauge", lambda: 0))
    with pytest.raises(ValueError, match=complaint):
        metrics.add(metric)
