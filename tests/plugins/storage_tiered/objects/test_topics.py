"""The description of a topic in the store: written by the leader of its first partition, kept true, deleted with it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from blumfeld.spi.object_store import StoreDeniedError
from blumfeld_kit.fakes.object_store import SimulatedStore
from blumfeld_storage_tiered.objects.manifest import SegmentCorruptError
from blumfeld_storage_tiered.objects.topics import (
    TopicDescription,
    TopicObjects,
    decode_description,
    topic_key,
)
from tests.plugins.storage_tiered.tiered_cluster import NAME, TOPIC_ID, TieredCluster

KEY = topic_key(NAME.topic, TOPIC_ID)


def description_in(cluster: TieredCluster) -> TopicDescription:
    return decode_description(KEY, cluster.bucket.read(KEY))


def has_description(cluster: TieredCluster) -> bool:
    return KEY in cluster.bucket.keys()  # noqa: SIM118 - no dict


def test_a_leader_describes_its_topic_before_it_copies() -> None:
    cluster = TieredCluster(2, retention_ms=77)
    description = description_in(cluster)
    assert (description.topic, description.partitions, description.replication_factor) == ("ticks", 1, 2)
    assert description.configs["retention.ms"] == "77"
    assert cluster.segment_keys() == []


def test_a_changed_setting_is_in_the_store_after_a_round() -> None:
    cluster = TieredCluster()
    cluster.topic_settings["retention.bytes"] = "5000"
    cluster.rounds()
    assert description_in(cluster).configs["retention.bytes"] == "5000"


def test_a_topic_that_does_not_change_costs_no_more_requests() -> None:
    cluster = TieredCluster()
    cluster.rounds()
    before = cluster.leader.tiering.store.requests.total()
    cluster.rounds(3)
    assert cluster.leader.tiering.store.requests.total() == before


def test_what_an_older_leader_wrote_late_is_put_right_by_the_next_sweep() -> None:
    cluster = TieredCluster()
    stale = msgspec.structs.replace(description_in(cluster), configs={"retention.ms": "1"})
    store = TopicObjects(SimulatedStore(cluster.leader.runtime, cluster.bucket))
    cluster.leader.runtime.run(store.write(stale))
    assert description_in(cluster) == stale
    cluster.rounds(2 * 120 + 2)
    assert description_in(cluster).configs == cluster.topic_settings


def test_a_store_that_refuses_the_description_gets_the_segments_all_the_same() -> None:
    cluster = TieredCluster()
    cluster.topic_settings["retention.bytes"] = "5000"
    put = cluster.bucket.put

    def refuse(key: str, *rest: Any, **more: Any) -> None:
        if key == KEY:
            raise StoreDeniedError("403")
        put(key, *rest, **more)

    cluster.bucket.put = refuse  # type: ignore[method-assign]
    cluster.write(30)
    cluster.rounds()
    assert cluster.leader.log.copied_end_offset > 0
    assert "retention.bytes" not in description_in(cluster).configs
    cluster.bucket.put = put  # type: ignore[method-assign]
    cluster.rounds()
    assert description_in(cluster).configs["retention.bytes"] == "5000"


def test_the_description_goes_with_the_topic() -> None:
    cluster = TieredCluster()
    cluster.write(30)
    cluster.rounds()
    cluster.leader.delete_topic()
    cluster.advance(600_000)
    assert not has_description(cluster)
    assert cluster.segment_keys() == []


def test_a_topic_whose_deletion_has_begun_says_so() -> None:
    cluster = TieredCluster()
    cluster.write(30)
    cluster.rounds()
    cluster.metadata.away = True
    cluster.leader.delete_topic()
    cluster.advance(1_000)
    assert description_in(cluster).deleted


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"{", "no description"),
        (b"{}", "no description"),
        (
            b'{"version":2,"topic":"t","topic_id":"x","partitions":1,"replication_factor":1,"configs":{}}',
            "version 2",
        ),
        (
            b'{"topic":"t","topic_id":"x","partitions":0,"replication_factor":1,"configs":{}}',
            "0 partitions",
        ),
        (b'{"topic":"t","topic_id":"x","partitions":1,"replication_factor":1,"configs":{}}', "that of t-x"),
    ],
)
def test_what_is_no_description_of_this_topic_is_refused(data: bytes, told: str) -> None:
    with pytest.raises(SegmentCorruptError, match=told):
        decode_description(KEY, data)
