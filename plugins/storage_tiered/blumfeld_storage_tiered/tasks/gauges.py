"""The metrics of tiered storage, under Kafka's names where Kafka has them. A scrape reads what the work has counted,
and makes no request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Protocol

from blumfeld.spi.hooks import Metric
from blumfeld_storage_tiered.cache.chunk_cache import ChunkCache
from blumfeld_storage_tiered.cache.segment_bytes import SegmentBytes
from blumfeld_storage_tiered.catalog.counts import Counts
from blumfeld_storage_tiered.stores.claimed import ClaimedStore
from blumfeld_storage_tiered.tasks.led_partition import LedPartition

TOPICS_MAX = 100
"""Topics with a sample of their own, as for the gauges of the broker: the first by name."""
OTHERS = "(others)"
"""The label of the sum of all others. No topic can have this name."""

Samples = Mapping[tuple[str, ...], float]

COUNTERS = (
    ("copy_bytes", "copied_bytes", "Bytes of segments that were copied (Kafka's RemoteCopyBytesPerSec)"),
    ("copy_requests", "copies", "Segments whose copy was begun (Kafka's RemoteCopyRequestsPerSec)"),
    ("copy_errors", "copy_errors", "Copies that failed; each is tried again (Kafka's RemoteCopyErrorsPerSec)"),
    ("fetch_bytes", "fetched_bytes", "Bytes that readers got from the remote part (Kafka's RemoteFetchBytesPerSec)"),
    ("fetch_requests", "fetches", "Reads of the remote part (Kafka's RemoteFetchRequestsPerSec)"),
    ("fetch_errors", "fetch_errors", "Reads of the remote part that failed (Kafka's RemoteFetchErrorsPerSec)"),
    ("delete_requests", "deletes", "Deletions of remote segments (Kafka's RemoteDeleteRequestsPerSec)"),
    ("delete_errors", "delete_errors", "Deletions of remote segments that failed (Kafka's RemoteDeleteErrorsPerSec)"),
    (
        "build_state_requests",
        "states",
        "Replicas that began in the middle of a log (Kafka's BuildRemoteLogAuxStateRequestsPerSec)",
    ),
    (
        "build_state_errors",
        "state_errors",
        "Tries of replicas to begin there that failed (Kafka's BuildRemoteLogAuxStateErrorsPerSec)",
    ),
)  # fmt: skip
"""Name → attribute of ``TopicCounts`` and meaning."""
LED = (
    ("copy_lag_bytes", "lag_bytes", "Bytes that may be copied and aren't yet (Kafka's RemoteCopyLagBytes)"),
    ("copy_lag_segments", "lag_segments", "Segments that may be copied and aren't yet (Kafka's RemoteCopyLagSegments)"),
    ("delete_lag_bytes", "delete_lag_bytes", "Bytes of expired remote segments (Kafka's RemoteDeleteLagBytes)"),
    ("delete_lag_segments", "delete_lag_segments", "Expired remote segments (Kafka's RemoteDeleteLagSegments)"),
    ("log_bytes", "remote_bytes", "Bytes of remote segments, of partitions led here (Kafka's RemoteLogSizeBytes)"),
    ("log_segments", "remote_segments", "Remote segments of partitions led here (Kafka's RemoteLogMetadataCount)"),
)  # fmt: skip
"""Name → attribute of ``LedPartition`` and meaning. Each is as of the last round of the partition's task."""
OPERATIONS = ("put", "put_parts", "get_range", "head", "list", "delete")
"""The methods of a store that make requests."""


class Measured(Protocol):
    """The parts of a node that are measured."""

    counts: Counts
    cache: ChunkCache
    source: SegmentBytes
    store: ClaimedStore

    def led_partitions(self) -> Mapping[str, list[LedPartition]]:
        """Return the work for the partitions that are led here, by topic."""
        ...


def gauges(node: Measured) -> list[Metric]:
    """Return the metrics of a node. They read ``node`` at a scrape."""
    return [*_of_topics(node), *_of_cache(node.cache), *_of_requests(node)]


def _of_topics(node: Measured) -> list[Metric]:
    def counter(attribute: str) -> Callable[[], Samples]:
        value = attrgetter(attribute)
        return lambda: _bounded({topic: value(counts) for topic, counts in node.counts.topics.items()})

    def gauge(attribute: str) -> Callable[[], Samples]:
        value = attrgetter(attribute)
        return lambda: _bounded(
            {topic: sum(map(value, works)) for topic, works in node.led_partitions().items()}
        )

    return [
        *(
            Metric(f"blumfeld_topic_remote_{name}_total", meaning, "counter", counter(attribute), ("topic",))
            for name, attribute, meaning in COUNTERS
        ),
        *(
            Metric(f"blumfeld_topic_remote_{name}", meaning, "gauge", gauge(attribute), ("topic",))
            for name, attribute, meaning in LED
        ),
    ]


def _of_cache(cache: ChunkCache) -> list[Metric]:
    return [
        Metric(
            "blumfeld_remote_cache_bytes",
            "Bytes of remote files in the cache on the local disk",
            "gauge",
            lambda: cache.size_bytes,
        ),
        Metric(
            "blumfeld_remote_cache_hits_total",
            "Pieces of remote files that readers found in the cache",
            "counter",
            lambda: cache.hits,
        ),
        Metric(
            "blumfeld_remote_cache_misses_total",
            "Pieces of remote files that readers waited for",
            "counter",
            lambda: cache.misses,
        ),
        Metric(
            "blumfeld_remote_cache_evictions_total",
            "Pieces that were removed from the cache to make room",
            "counter",
            lambda: cache.evictions,
        ),
    ]


def _of_requests(node: Measured) -> list[Metric]:
    return [
        Metric(
            "blumfeld_remote_reads_waiting",
            "Reads that wait for one of remote.log.reader.threads (Kafka's RemoteLogReaderTaskQueueSize)",
            "gauge",
            lambda: node.source.waiting,
        ),
        Metric(
            "blumfeld_remote_fetches_expired_total",
            "Reads that took longer than remote.fetch.max.wait.ms (Kafka's DelayedRemoteFetchMetrics ExpiresPerSec)",
            "counter",
            lambda: node.counts.expired_fetches,
        ),
        Metric(
            "blumfeld_remote_store_requests_total",
            "Calls of the object store; put_parts is one call, with a request for each part of 8 MiB",
            "counter",
            lambda: {(name,): node.store.requests[name] for name in OPERATIONS},
            ("operation",),
        ),
        Metric(
            "blumfeld_remote_store_errors_total",
            "Calls of the object store that failed",
            "counter",
            lambda: {(name,): node.store.errors[name] for name in OPERATIONS},
            ("operation",),
        ),
    ]


def _bounded(values_by_topic: Mapping[str, float]) -> Samples:
    names = sorted(values_by_topic)
    samples: dict[tuple[str, ...], float] = {(name,): values_by_topic[name] for name in names[:TOPICS_MAX]}
    if len(names) > TOPICS_MAX:
        samples[(OTHERS,)] = sum(values_by_topic[name] for name in names[TOPICS_MAX:])
    return samples
