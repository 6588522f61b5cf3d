"""What a node with tiered storage measures."""

from __future__ import annotations

from typing import Any

import pytest

from blumfeld.spi.completion import Completion
from blumfeld_storage_tiered.tasks.gauges import OTHERS, TOPICS_MAX, gauges
from tests.plugins.storage_tiered.tiered_cluster import TieredCluster


def measured(cluster: TieredCluster) -> dict[str, Any]:
    """The metrics of the leader, by name without the prefix; those of the one topic are numbers."""
    values: dict[str, Any] = {}
    for metric in gauges(cluster.leader.tiering):
        value = metric.read()
        if metric.labels == ("topic",):
            value = value.get(("ticks",), 0)
        values[metric.name.removeprefix("blumfeld_").removeprefix("topic_remote_")] = value
    return values


def test_copies_and_what_the_store_has_are_measured() -> None:
    cluster = TieredCluster()
    cluster.write(30)
    segments = cluster.leader.log.segments()[:-1]
    held = sum(segment.size_bytes for segment in segments)
    cluster.rounds()
    found = measured(cluster)
    assert (found["copy_requests_total"], found["copy_bytes_total"]) == (len(segments), held)
    assert (found["log_segments"], found["log_bytes"]) == (len(segments), held)
    assert (found["copy_errors_total"], found["copy_lag_bytes"], found["copy_lag_segments"]) == (0, 0, 0)
    assert found["remote_store_requests_total"][("put",)] >= 6 * len(segments)


def test_a_store_that_is_away_shows_as_errors_and_as_lag() -> None:
    cluster = TieredCluster()
    cluster.rounds()
    cluster.write(30)
    cluster.bucket.faults.unavailable = 1.0
    cluster.rounds()
    found = measured(cluster)
    segments = cluster.leader.log.segments()[:-1]
    assert found["copy_lag_segments"] == len(segments)
    assert found["copy_lag_bytes"] == sum(segment.size_bytes for segment in segments)
    assert found["copy_errors_total"] > 0
    assert sum(found["remote_store_errors_total"].values()) > 0
    cluster.bucket.faults.heal()
    cluster.rounds(3)
    assert measured(cluster)["copy_lag_segments"] == 0


def test_reads_are_measured_with_their_bytes_errors_and_the_cache() -> None:
    cluster = TieredCluster()
    cluster.write(30)
    cluster.rounds()
    cluster.drop_local()
    cluster.read_all()
    found = measured(cluster)
    assert found["fetch_bytes_total"] >= found["log_bytes"]
    assert found["fetch_requests_total"] >= found["log_segments"]
    assert found["fetch_errors_total"] == 0
    assert found["remote_cache_misses_total"] > 0
    assert 0 < found["remote_cache_bytes"] <= cluster.cache_bytes


def test_a_read_of_a_store_that_does_not_answer_expires() -> None:
    cluster = TieredCluster()
    cluster.write(30)
    cluster.rounds()
    cluster.drop_local()
    cluster.bucket.faults.latency_ms = 60_000
    read: Completion[Any] = cluster.leader.log.read(0, 1000, 100, True)
    cluster.advance(1_000)
    assert read.done
    assert measured(cluster)["remote_fetches_expired_total"] == 1


def test_deletions_are_measured() -> None:
    cluster = TieredCluster(retention_ms=600_000)
    cluster.write(30)
    cluster.rounds()
    cluster.drop_local()
    held = measured(cluster)["log_segments"]
    cluster.rounds(25)
    found = measured(cluster)
    assert found["delete_requests_total"] == held
    assert (found["delete_errors_total"], found["delete_lag_segments"], found["log_segments"]) == (0, 0, 0)


@pytest.mark.parametrize("topics", [1, TOPICS_MAX + 5])
def test_the_number_of_samples_is_bounded(topics: int) -> None:
    cluster = TieredCluster()
    for number in range(topics):
        cluster.leader.tiering.counts.of(f"topic-{number:04d}").copies = 1
    samples = next(m for m in gauges(cluster.leader.tiering) if "copy_requests" in m.name).read()
    assert len(samples) == min(topics, TOPICS_MAX + 1)
    assert samples.get((OTHERS,), 0) == max(0, topics - TOPICS_MAX)
