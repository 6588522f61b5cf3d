"""The plan of a restored cluster, from what a store has."""

from __future__ import annotations

from msgspec.structs import replace

from blumfeld.log.producers.snapshot import ProducerEntry, encode_snapshot
from blumfeld.spi.object_store import ObjectInfo
from blumfeld.wire.primitives import uuid_text
from blumfeld_storage_tiered.catalog.catalog import RemoteLogCatalog
from blumfeld_storage_tiered.catalog.plans import plan_sweep
from blumfeld_storage_tiered.catalog.records import metadata_partition
from blumfeld_storage_tiered.catalog.segment import SegmentState, TopicIdPartition
from blumfeld_storage_tiered.metadata_topic.topic import MetadataTopicSettings
from blumfeld_storage_tiered.objects.names import SegmentName
from blumfeld_storage_tiered.objects.topics import TopicDescription
from blumfeld_storage_tiered.restore.found import Damage, FoundPartition, FoundTopic, StoreContent
from blumfeld_storage_tiered.restore.plan import (
    EPOCH_MARGIN,
    PRODUCER_ID_MARGIN,
    RestoredTopic,
    RestorePlan,
    Retention,
    plan_restore,
)
from tests.plugins.storage_tiered.catalog.history import AT, entries_of, remote_segment

SETTINGS = MetadataTopicSettings(num_partitions=4)
WRITTEN_MS = 5_000
CONFIGS = {"retention.ms": "77", "cleanup.policy": "delete"}
LOG = [0] * 10 + [4] * 10


def partition_of(*spans: tuple[int, int], number: int = 0) -> FoundPartition:
    at = TopicIdPartition(AT.topic_id, number, AT.topic)
    segments = [
        replace(remote_segment(LOG, start, end, nth), partition=at, state=SegmentState.COPY_FINISHED)
        for nth, (start, end) in enumerate(spans)
    ]
    producers = encode_snapshot([ProducerEntry(producer_id=41), ProducerEntry(producer_id=7)])
    return FoundPartition(at, segments, [], entries_of(LOG, 0, max(end for _, end in spans)), producers)


def description(**fields: object) -> TopicDescription:
    facts = TopicDescription(
        topic=AT.topic, topic_id=uuid_text(AT.topic_id), partitions=3, replication_factor=2, configs=CONFIGS
    )
    return replace(facts, **fields)


def found_topic(*partitions: FoundPartition, described: TopicDescription | None = None) -> FoundTopic:
    by_number = {found.partition.partition: found for found in partitions}
    return FoundTopic(AT.topic, AT.topic_id, described, by_number, WRITTEN_MS)


def planned(
    *topics: FoundTopic, brokers: tuple[int, ...] = (1, 2, 3), damages: tuple[Damage, ...] = ()
) -> RestorePlan:
    return plan_restore(StoreContent("cluster", list(topics), list(damages), WRITTEN_MS), brokers, SETTINGS)


def only(plan: RestorePlan) -> RestoredTopic:
    (topic,) = plan.topics
    return topic


def kinds(plan: RestorePlan) -> list[str]:
    return [finding.kind for finding in plan.findings]


def catalog_of(plan: RestorePlan, at: TopicIdPartition = AT) -> RemoteLogCatalog:
    catalog = RemoteLogCatalog(at)
    for change in plan.changes[metadata_partition(at, SETTINGS.num_partitions)]:
        if (change.partition.topic_id, change.partition.partition) == (at.topic_id, at.partition):
            catalog.apply(change)
    return catalog


def test_a_topic_has_its_id_its_settings_and_its_partitions_again() -> None:
    topic = only(planned(found_topic(partition_of((0, 12)), described=description())))
    assert (topic.name, topic.topic_id) == (AT.topic, AT.topic_id)
    assert topic.configs == {**CONFIGS, "remote.storage.enable": "true"}
    assert [partition.replicas for partition in topic.partitions] == [(1, 2), (2, 3), (3, 1)]
    assert [partition.history.end_offset for partition in topic.partitions] == [12, 0, 0]


def test_fewer_brokers_than_replicas_get_one_each() -> None:
    plan = planned(found_topic(partition_of((0, 12)), described=description()), brokers=(9,))
    assert {partition.replicas for partition in only(plan).partitions} == {(9,)}
    assert plan.metadata_topic.partitions[0].replicas == (9,)
    assert plan.metadata_topic.configs["min.insync.replicas"] == "1"


def test_a_topic_without_a_description_keeps_everything() -> None:
    """With Kafka's defaults its history would be deleted in the first minute."""
    plan = planned(found_topic(partition_of((0, 12), number=2)))
    assert only(plan).configs == {
        "remote.storage.enable": "true", "retention.ms": "-1", "retention.bytes": "-1",
    }  # fmt: skip
    assert len(only(plan).partitions) == 3
    assert "no description" in kinds(plan)
    assert not plan.loses


def test_a_partition_that_the_description_does_not_know_is_restored() -> None:
    plan = planned(found_topic(partition_of((0, 12), number=5), described=description()))
    assert len(only(plan).partitions) == 6


def test_every_whole_segment_is_known_as_copied() -> None:
    plan = planned(found_topic(partition_of((0, 12), (12, 20)), described=description()))
    catalog = catalog_of(plan)
    assert [segment.state for segment in catalog] == [SegmentState.COPY_FINISHED] * 2
    assert catalog.served_end_offset(0, entries_of(LOG)) == 20


def test_a_copy_without_a_manifest_is_known_as_begun_and_serves_nothing() -> None:
    found = partition_of((0, 12))
    found.unfinished.append(SegmentName(AT, 12, b"u" * 16))
    plan = planned(found_topic(found, described=description()))
    catalog = catalog_of(plan)
    (unfinished,) = catalog.unfinished()
    assert (unfinished.segment_id, unfinished.state) == (b"u" * 16, SegmentState.COPY_STARTED)
    assert catalog.served_end_offset(0, entries_of(LOG)) == 12
    assert only(plan).partitions[0].history.end_offset == 12
    assert not plan.loses


def test_a_hole_loses_records_and_what_is_before_it_is_never_deleted() -> None:
    plan = planned(found_topic(partition_of((0, 5), (8, 20)), described=description()))
    assert plan.loses
    assert next(f.text for f in plan.findings if f.kind == "hole").startswith(
        "no segment has the offsets 5 to 7"
    )
    catalog = catalog_of(plan)
    assert [segment.start_offset for segment in catalog] == [8]
    left = [(ObjectInfo("before the hole", 1, WRITTEN_MS), b"b" * 16)]
    sweep = plan_sweep(left, catalog, now_ms=1 << 50, grace_ms=1)
    assert (sweep.orphans, [info.key for info in sweep.unexplained]) == ((), ["before the hole"])


def retained(retention: Retention, **configs: str) -> RestorePlan:
    described = description(configs={name.replace("_", "."): value for name, value in configs.items()})
    topic = found_topic(partition_of((0, 12), (12, 20)), described=described)
    return plan_restore(StoreContent("cluster", [topic], [], WRITTEN_MS), (1,), SETTINGS, retention)


def test_segments_that_the_first_start_will_delete_are_told() -> None:
    """The cluster may have been away for days. All segments of the model were written at 0."""
    assert "expired" in kinds(retained(Retention(now_ms=78), retention_ms="77"))
    assert "expired" not in kinds(retained(Retention(now_ms=76), retention_ms="77"))
    assert "expired" in kinds(retained(Retention(now_ms=78, broker_ms=77)))
    assert "expired" not in kinds(retained(Retention(now_ms=78, broker_ms=77), retention_ms="-1"))


def test_a_topic_may_keep_all() -> None:
    plan = retained(Retention(now_ms=78, keep_all=True), retention_ms="77")
    assert "expired" not in kinds(plan)
    assert only(plan).configs["retention.ms"] == only(plan).configs["retention.bytes"] == "-1"


def test_damage_loses_records() -> None:
    plan = planned(
        found_topic(partition_of((0, 12)), described=description()),
        damages=(Damage("k", "nothing", "a log"),),
    )
    assert plan.loses
    assert plan.findings[0].about == "k"


def test_a_deleted_topic_is_not_restored() -> None:
    plan = planned(found_topic(partition_of((0, 12)), described=description(deleted=True)))
    assert (plan.topics, kinds(plan), plan.loses) == ((), ["deleted"], False)


def test_of_two_topics_with_one_name_the_one_that_was_written_last_is_restored() -> None:
    older = FoundTopic(AT.topic, b"o" * 16, None, {}, WRITTEN_MS - 1)
    plan = planned(older, found_topic(partition_of((0, 12)), described=description()))
    assert only(plan).topic_id == AT.topic_id
    assert ("older namesake" in kinds(plan), plan.loses) == (True, False)


def test_a_topic_with_segments_that_nobody_deleted_is_not_left_out_without_a_word_of_the_operator() -> None:
    """A node that is started without a restore makes a topic of this name anew. It was written last."""
    history = found_topic(partition_of((0, 12)), described=description())
    newer = FoundTopic(AT.topic, b"n" * 16, None, {}, history.modified_ms + 1)
    plan = planned(history, newer)
    assert only(plan).topic_id == newer.topic_id
    assert [finding.loses for finding in plan.findings if finding.kind == "older namesake"] == [True]


def test_leader_epochs_and_producer_ids_are_above_those_of_the_old_cluster() -> None:
    plan = planned(found_topic(partition_of((0, 20)), described=description()))
    assert only(plan).partitions[0].leader_epoch == 4 + EPOCH_MARGIN
    assert plan.next_producer_id == 42 + PRODUCER_ID_MARGIN


def test_the_same_store_gives_the_same_plan() -> None:
    """Each node of a cluster may be restored on its own machine."""
    topics = [found_topic(partition_of((0, 12)), partition_of((0, 5), number=1), described=description())]
    assert planned(*topics) == planned(*topics, brokers=(3, 1, 2))


def test_every_record_is_younger_than_every_object() -> None:
    plan = planned(found_topic(partition_of((0, 12)), described=description()))
    assert catalog_of(plan).since_ms == plan.time_ms > WRITTEN_MS
    changes = [change for records in plan.changes.values() for change in records]
    assert {change.event_timestamp_ms for change in changes} == {plan.time_ms}
