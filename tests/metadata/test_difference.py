"""The delta between two images, against the deltas of the records between them."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import pytest
from msgspec import structs

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.difference import difference
from blumfeld.metadata.image.records import emptied
from blumfeld.metadata.image.sections import SectionKinds
from blumfeld.metadata.image.step import ImageStep
from blumfeld.metadata.slices import SLICE_LOOKS
from blumfeld.spi.cluster import ImageDelta
from blumfeld.spi.steps import drained
from blumfeld.wire.messages import metadata_records as records
from blumfeld.wire.schema import Message
from tests.metadata.acl_section import Acls, AclSection

OLD, OTHER, GONE = bytes([1] * 16), bytes([2] * 16), bytes([3] * 16)


def topic(topic_id: bytes, name: str, partitions: int = 2) -> list[Message]:
    return [
        records.TopicRecord(name=name, topic_id=topic_id),
        *(
            records.PartitionRecord(
                partition_id=number, topic_id=topic_id, replicas=[1, 2], isr=[1, 2], leader=1, leader_epoch=0
            )
            for number in range(partitions)
        ),
    ]


def broker(broker_id: int) -> Message:
    return records.RegisterBrokerRecord(broker_id=broker_id, broker_epoch=broker_id, fenced=False)


def changed(image: MetadataImage, *messages: Message) -> tuple[MetadataImage, ImageDelta]:
    """The image behind these records, and the delta of them as one step."""
    after = deepcopy(image)
    step = ImageStep(after)
    for message in messages:
        step.replay(message)
    return after, step.finish(image.offset + len(messages), 1)


@pytest.fixture
def image() -> MetadataImage:
    config = records.ConfigRecord(resource_type=2, resource_name="old", name="retention.ms", value="5")
    first = (broker(1), broker(2), *topic(OLD, "old"), *topic(GONE, "gone"), config)
    return changed(MetadataImage("cluster"), *first)[0]


def test_elections_are_counted_clean_and_unclean(image: MetadataImage) -> None:
    def elect(leader: int, **more: object) -> Message:
        return records.PartitionChangeRecord(topic_id=OLD, partition_id=0, leader=leader, **more)  # type: ignore[arg-type]

    def counted(*changes: Message) -> tuple[int, int]:
        delta = changed(image, *changes)[1]
        return delta.leaders_elected, delta.leaders_elected_uncleanly

    isr_alone = records.PartitionChangeRecord(topic_id=OLD, partition_id=0, isr=[1])
    eligible = records.PartitionChangeRecord(
        topic_id=OLD, partition_id=0, isr=[], eligible_leader_replicas=[2], leader=-1
    )
    assert counted(*topic(OTHER, "new")) == (0, 0)
    assert counted(isr_alone, elect(-1), elect(1)) == (1, 0)
    assert counted(elect(1)) == (0, 0), "a new leader epoch of the same leader"
    assert counted(elect(2), elect(1)) == (2, 0)
    assert counted(isr_alone, elect(2, isr=[2])) == (1, 1)
    assert counted(eligible, elect(2, isr=[2])) == (1, 0)


CHANGES: dict[str, list[Message]] = {
    "nothing": [],
    "a topic": topic(OTHER, "new"),
    "a topic is gone": [records.RemoveTopicRecord(topic_id=GONE)],
    "a topic of the same name": [records.RemoveTopicRecord(topic_id=OLD), *topic(OTHER, "old", 3)],
    "a leader": [records.PartitionChangeRecord(topic_id=OLD, partition_id=1, leader=2)],
    "a partition": [
        records.PartitionRecord(partition_id=2, topic_id=OLD, replicas=[2], isr=[2], leader=2, leader_epoch=0)
    ],
    "a broker": [broker(3)],
    "a broker is gone": [records.UnregisterBrokerRecord(broker_id=2, broker_epoch=2)],
    "a config": [records.ConfigRecord(resource_type=2, resource_name="old", name="retention.ms", value="6")],
    "a config is gone": [
        records.ConfigRecord(resource_type=2, resource_name="old", name="retention.ms", value=None)
    ],
    "a feature": [records.FeatureLevelRecord(name="group.version", feature_level=1)],
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_difference_is_the_delta_of_the_records_between(image: MetadataImage, name: str) -> None:
    """It names the configs of deleted topics, too."""
    after, delta = changed(image, *CHANGES[name])
    changes = drained(difference(image, after)).delta
    more = set(changes.configs_changed) - set(delta.configs_changed)
    assert more <= {(2, topic.name) for topic in delta.topics_deleted}
    counted = structs.replace(
        delta, leaders_elected=0, leaders_elected_uncleanly=0
    )  # what was between isn't known
    assert structs.replace(changes, configs_changed=delta.configs_changed) == counted
    assert set(delta.configs_changed) <= set(changes.configs_changed)


@pytest.mark.parametrize("partitions", [1, 700, 5_000])
def test_images_are_compared_in_steps_and_share_what_is_equal(partitions: int) -> None:
    """No step looks at much more than ``SLICE_LOOKS`` partitions, also of one topic."""
    topics = 12_000 // partitions if partitions > 1 else 3_000
    records_of = [record for n in range(topics) for record in topic(n.to_bytes(16), f"t{n}", partitions)]
    old, _ = changed(MetadataImage("cluster"), broker(1), *records_of)
    new, _ = changed(
        MetadataImage("cluster"),
        broker(1),
        *records_of,
        records.PartitionChangeRecord(topic_id=bytes(16), partition_id=0, leader=2),
    )
    steps, looks = difference(old, new), 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            outcome = end.value
            break
        looks += 1
    assert [change[1].leader for change in outcome.delta.partitions_changed] == [2]
    assert looks >= topics * partitions // (2 * SLICE_LOOKS)
    assert all(new.topics[f"t{n}"] is old.topics[f"t{n}"] for n in range(1, topics))
    assert len(outcome.gone) == partitions, "of the topic that isn't shared"


def test_topics_that_end_are_let_go_of(image: MetadataImage) -> None:
    after, _ = changed(image, *CHANGES["a topic of the same name"], *CHANGES["a topic is gone"])
    outcome = drained(difference(image, after))
    assert outcome.gone == [
        partition for topic in image.topics.values() for partition in topic.partitions.values()
    ]


def test_many_records_of_plugins_are_compared_and_freed_over_several_steps() -> None:
    """100,000 ACLs in one step would hold the loop for some ten milliseconds."""
    count = 4 * SLICE_LOOKS
    acls = [records.AccessControlEntryRecord(id=n.to_bytes(16, "big"), resource_type=2) for n in range(count)]
    old, new = (changed(MetadataImage("c", SectionKinds((AclSection(),))), *acls)[0] for _ in range(2))
    steps, turns = difference(old, new), 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found = end.value
            break
        turns += 1
    assert turns >= 2 * count // SLICE_LOOKS
    assert len(found.delta.section_records["acls"]) == len(found.gone) == count
    assert sum(1 for _ in emptied(new)) >= count // SLICE_LOOKS
    assert not new.kept


def test_a_large_step_is_replayed_into_a_section_part_by_part() -> None:
    sizes: list[int] = []

    class Section(AclSection):
        def replay(self, value: Acls, records: Sequence[Message]) -> Acls:
            sizes.append(len(records))
            return super().replay(value, records)

    after = MetadataImage("c", SectionKinds((Section(),)))
    step = ImageStep(after)
    for number in range(250):
        step.replay(records.AccessControlEntryRecord(id=number.to_bytes(16, "big"), resource_type=2))
        if not (number + 1) % 100:
            step.replay_sections()
    delta = step.finish(249, 1)
    assert sizes == [100, 100, 50]
    assert len(delta.section_records["acls"]) == len(after.sections["acls"]) == 250
