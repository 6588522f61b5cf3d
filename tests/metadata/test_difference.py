"""The delta between two images, against the deltas of the records between them."""

from __future__ import annotations

from copy import deepcopy

import pytest
from msgspec import structs

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.difference import difference
from blumfeld.metadata.image.step import ImageStep
from blumfeld.spi.cluster import ImageDelta
from blumfeld.wire.messages import metadata_records as records
from blumfeld.wire.schema import Message

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
    found = difference(image, after)
    more = set(found.configs_changed) - set(delta.configs_changed)
    assert more <= {(2, topic.name) for topic in delta.topics_deleted}
    assert structs.replace(found, configs_changed=delta.configs_changed) == delta
    assert set(delta.configs_changed) <= set(found.configs_changed)
