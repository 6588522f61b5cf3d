"""Gauges of topics: what a scrape sees of logs and replicas."""

from __future__ import annotations

import msgspec
import pytest

from blumfeld.broker.upkeep import topic_gauges
from tests.broker.batches import batch, fetch, produce
from tests.broker.harness import NODE, BrokerHarness


def test_records_and_bytes_are_seen_by_topic() -> None:
    broker = BrokerHarness(partitions=2)
    assert broker.gauge("topic_log_end_offset") == {("t",): 0}
    written = batch()
    broker.ask(produce(written), 9)
    assert broker.gauge("topic_log_end_offset") == {("t",): 1}
    assert broker.gauge("topic_log_bytes") == {("t",): len(written)}
    assert broker.gauge("led_partitions") == 2


def test_topics_beyond_the_limit_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = BrokerHarness()
    for name in ("c", "a", "b"):
        broker.create_topic(name)
    monkeypatch.setattr(topic_gauges, "TOPICS_MAX", 1)
    assert broker.gauge("topic_log_bytes") == {("a",): 0, (topic_gauges.OTHERS,): 0}


def test_a_partition_lacks_a_replica_in_sync() -> None:
    broker = BrokerHarness(partitions=1)
    assert broker.gauge("under_replicated_partitions") == 0
    hosted = broker.hosted()
    hosted.image = msgspec.structs.replace(hosted.image, replicas=(1, 2))
    assert broker.gauge("under_replicated_partitions") == 1


def test_partitions_at_and_under_min_isr_and_reassigned_ones_are_counted() -> None:
    broker = BrokerHarness(partitions=1)
    hosted = broker.hosted()
    assert hosted.leader is not None

    def counts() -> list[object]:
        return [broker.gauge(f"{name}_partitions") for name in ("under_min_isr", "at_min_isr", "reassigning")]

    assert counts() == [0, 1, 0]
    hosted.min_insync_replicas = 2
    hosted.image = msgspec.structs.replace(hosted.image, adding_replicas=(2,))
    assert counts() == [1, 0, 1]
    hosted.leader.isr = (1, 2, 3)
    hosted.image = msgspec.structs.replace(hosted.image, adding_replicas=(), removing_replicas=(1,))
    assert counts() == [0, 0, 1]


def test_bytes_in_and_out_are_counted_by_topic() -> None:
    """Both ways of Produce count. A follower's fetch is replication, and no bytes out."""
    broker = BrokerHarness(partitions=2)
    assert broker.gauge("topic_bytes_in_total") == {("t",): 0}
    written = batch()
    broker.ask(produce(written), 9)
    broker.ask(produce(written, partition=1, acks=-1), 9)
    assert broker.gauge("topic_bytes_in_total") == {("t",): 2 * len(written)}
    broker.ask(fetch(), 12)
    assert broker.gauge("topic_bytes_out_total") == {("t",): len(written)}
    broker.ask(fetch(replica_id=NODE), 12)
    assert broker.gauge("topic_bytes_out_total") == {("t",): len(written)}


@pytest.mark.parametrize("version", [11, 12])
@pytest.mark.parametrize("partitions", [1, 2, 3_000])
def test_each_way_of_fetch_counts_the_bytes_it_gives(version: int, partitions: int) -> None:
    """Straight (one partition from version 12 on), general, and in steps. The many partitions need not exist."""
    broker = BrokerHarness(partitions=1)
    broker.broker.gauges()
    written = batch()
    broker.ask(produce(written), 9)
    broker.ask(fetch(partitions=tuple(range(partitions))), version)
    assert broker.gauge("topic_bytes_out_total") == {("t",): len(written)}


def test_bytes_of_a_partition_that_left_stay_counted() -> None:
    broker = BrokerHarness(partitions=2)
    broker.broker.gauges()
    written = batch()
    for index in range(2):
        broker.ask(produce(written, partition=index), 9)
    broker.change_partition(index=1, replicas=(2,), leader=2, epoch=1)
    broker.runtime.run_turn()
    assert broker.broker.partitions.find("t", 1) is None
    assert broker.gauge("topic_bytes_in_total") == {("t",): 2 * len(written)}


def test_a_deleted_topic_has_no_sample_any_more() -> None:
    broker = BrokerHarness(partitions=1)
    assert broker.gauge("topic_bytes_in_total") == {("t",): 0}
    broker.metadata.delete_topic("t")
    broker.runtime.run_turn()
    assert broker.gauge("topic_bytes_in_total") == {}


def test_partitions_without_a_leader_are_offline() -> None:
    broker = BrokerHarness(partitions=2)
    assert broker.gauge("offline_partitions") == 0
    broker.change_partition(index=1, leader=-1, epoch=1)
    assert broker.gauge("offline_partitions") == 1
