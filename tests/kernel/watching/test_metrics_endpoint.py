"""The Prometheus and health port, spoken to over a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blumfeld.broker.coordination.group_lag import Lags
from blumfeld.broker.serving.counts import LATENCY_BOUNDS_MS, ApiCounts, NodeMetrics
from blumfeld.kernel.watching.metrics_endpoint import REQUEST_BYTES_MAX, Health, MetricsEndpoint
from blumfeld.spi.histogram import Histogram
from blumfeld.spi.hooks import Metric
from blumfeld.spi.scheduler import Scheduler
from blumfeld.spi.transport import Listener

LISTENER = Listener(name="PLAINTEXT", kind="broker", host="127.0.0.1", port=9092)


async def no_lags(group_id: str | None) -> Lags:
    return Lags({}, 0)


async def ask(port: int, request: bytes) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.decode()


def with_endpoint(
    metrics: NodeMetrics,
    status: str,
    body: Callable[[int], Awaitable[None]],
    group_lags: Callable[[str | None], Awaitable[Lags]] | None = None,
) -> None:
    async def main() -> None:
        health = Health(status=status, node_id=3, cluster_id="c", partitions_refusing_writes=0)
        scheduler = Scheduler(count(0.0, 2.0).__next__, asyncio.get_running_loop().call_soon)  # two ms a look
        endpoint = MetricsEndpoint(
            scheduler, metrics, lambda: health, group_lags or no_lags, lambda: '{"format":1}'
        )
        port = await endpoint.start("127.0.0.1", 0)
        try:
            await body(port)
        finally:
            await endpoint.stop()
            await endpoint.stop()

    asyncio.run(main())


def served(counts: ApiCounts, elapsed_ms: float) -> None:
    """Count a request as the broker's routes do."""
    if not counts.above_ms < elapsed_ms <= counts.up_to_ms:
        counts.enter_bucket(elapsed_ms)
    counts.requests += 1
    counts.time_ms += elapsed_ms


def test_a_scrape_shows_what_was_counted() -> None:
    metrics = NodeMetrics()
    metrics.measure_latencies()
    counts = metrics.counts_of(0)
    for elapsed_ms in (1.5, 0.5):
        served(counts, elapsed_ms)
    counts.request_bytes, counts.response_bytes = 2000, 100
    metrics.opened(LISTENER)
    metrics.opened(LISTENER)
    metrics.closed(LISTENER)
    metrics.add(Metric("blumfeld_parked_requests", "Parked", "gauge", lambda: 4.0))
    metrics.add(Metric("blumfeld_log_flush_seconds_total", "Flushing", "counter", lambda: 2.5))
    counts.failed(3)
    counts.failed(3)
    counts.failed(6)
    syncs = Histogram((0.001, 0.01))
    for seconds in (0.0005, 0.001, 0.5):
        syncs.add(seconds)
    metrics.add(
        Metric("blumfeld_sync_seconds", "Syncs", "histogram", lambda: {("/a",): syncs}, ("directory",))
    )
    metrics.add(Metric("blumfeld_lag_seconds", "Lag", "histogram", lambda: Histogram((1.0,))))

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
            'blumfeld_request_latency_seconds_bucket{api="Produce",le="0.00025"} 0.0',
            'blumfeld_request_latency_seconds_bucket{api="Produce",le="0.0005"} 1.0',
            'blumfeld_request_latency_seconds_bucket{api="Produce",le="0.001"} 1.0',
            'blumfeld_request_latency_seconds_bucket{api="Produce",le="0.0025"} 2.0',
            'blumfeld_request_latency_seconds_bucket{api="Produce",le="+Inf"} 2.0',
            'blumfeld_request_latency_seconds_count{api="Produce"} 2.0',
            'blumfeld_request_latency_seconds_sum{api="Produce"} 0.002',
            "blumfeld_tasks 2.0",
            "blumfeld_parked_requests 4.0",
            "blumfeld_log_flush_seconds_total 2.5",
            'blumfeld_request_errors_total{api="Produce",error="UNKNOWN_TOPIC_OR_PARTITION"} 2.0',
            'blumfeld_request_errors_total{api="Produce",error="NOT_LEADER_OR_FOLLOWER"} 1.0',
            'blumfeld_sync_seconds_bucket{directory="/a",le="0.001"} 2.0',
            'blumfeld_sync_seconds_bucket{directory="/a",le="+Inf"} 3.0',
            'blumfeld_sync_seconds_sum{directory="/a"} 0.5015',
            'blumfeld_lag_seconds_bucket{le="1.0"} 0.0',
        ):
            assert line in text.splitlines(), line

    with_endpoint(metrics, "ok", body)


def test_other_work_has_a_turn_between_two_metrics() -> None:
    """A metric may look at each of thousands of partitions, and a node has some ninety metrics."""
    metrics, turns, read_in = NodeMetrics(), 0, list[int]()

    def read() -> float:
        read_in.append(turns)
        return 1.0

    for name in "abc":
        metrics.add(Metric(name, "Letter", "gauge", read))

    async def body(port: int) -> None:
        nonlocal turns
        scrape = asyncio.ensure_future(ask(port, b"GET /metrics HTTP/1.1\r\n\r\n"))
        while not scrape.done():
            turns += 1
            await asyncio.sleep(0)
        assert "\nc 1.0\n" in scrape.result()

    with_endpoint(metrics, "ok", body)
    assert read_in[0] < read_in[1] < read_in[2]


@pytest.mark.parametrize(("status", "code"), [("ok", 200), ("starting", 503), ("refusing writes", 503)])
def test_health_says_whether_the_node_serves(status: str, code: int) -> None:
    async def body(port: int) -> None:
        text = await ask(port, b"GET /health HTTP/1.0\r\n\r\n")
        assert text.startswith(f"HTTP/1.1 {code} ")
        rest = '"node_id":3,"cluster_id":"c","partitions_refusing_writes":0'
        assert text.endswith(f'{{"status":"{status}",{rest}}}\n')

    with_endpoint(NodeMetrics(), status, body)


def test_build_is_the_document_of_the_nodes_plan() -> None:
    async def body(port: int) -> None:
        text = await ask(port, b"GET /build HTTP/1.1\r\n\r\n")
        assert "Content-Type: application/json" in text
        assert text.endswith('\r\n\r\n{"format":1}\n')

    with_endpoint(NodeMetrics(), "starting", body)


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
        (Metric("fine", "", "summary", lambda: 0), "not one of counter, gauge, histogram"),
    ],
)
def test_a_metric_that_cannot_be_shown_is_refused(metric: Metric, complaint: str) -> None:
    metrics = NodeMetrics()
    metrics.add(Metric("blumfeld_parked_requests", "", "gauge", lambda: 0))
    with pytest.raises(ValueError, match=complaint):
        metrics.add(metric)


@given(st.lists(st.tuples(st.floats(0, 1e4) | st.sampled_from(LATENCY_BOUNDS_MS), st.booleans())))
def test_the_histogram_counts_each_request_in_its_bucket(requests: list[tuple[float, bool]]) -> None:
    """Whatever the order of latencies, and whenever somebody scrapes: the buckets are those of a plain count."""
    metrics = NodeMetrics()
    counts = metrics.counts_of(0)
    served(counts, 3.0)
    metrics.measure_latencies()
    for elapsed_ms, scraped in requests:
        served(counts, elapsed_ms)
        if scraped:
            counts.latencies()
    expected = [0] * (len(LATENCY_BOUNDS_MS) + 1)
    for elapsed_ms, _ in requests:
        expected[sum(bound_ms < elapsed_ms for bound_ms in LATENCY_BOUNDS_MS)] += 1
    assert counts.latencies() == expected
