"""Images of a small cluster, and changes of it, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.step import ImageStep
from blumfeld.wire.messages.metadata_records import (
    BrokerEndpoint,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.change import Change, PartitionStep

LISTENER = "PLAINTEXT"
ORDERS = b"o" * 16
TRADES = b"t" * 16


def broker(broker_id: int, epoch: int = 100, *, fenced: bool = False) -> RegisterBrokerRecord:
    """The registration of a broker with one listener."""
    at = BrokerEndpoint(name=LISTENER, host="127.0.0.1", port=9000 + broker_id, security_protocol=0)
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=bytes([broker_id]) * 16,
        broker_epoch=epoch,
        end_points=[at],
        rack=f"rack-{broker_id}",
        fenced=fenced,
    )


def partition(topic_id: bytes, index: int, replicas: Sequence[int], **fields: Any) -> PartitionRecord:
    """A partition whose first replica leads, and whose replicas are in sync."""
    given: dict[str, Any] = {
        "isr": list(replicas),
        "leader": replicas[0],
        "leader_epoch": 0,
        "partition_epoch": 0,
        **fields,
    }
    return PartitionRecord(topic_id=topic_id, partition_id=index, replicas=list(replicas), **given)


def image_of(*records: Message) -> MetadataImage:
    """An image with these records."""
    image = MetadataImage("cluster-of-the-test---")
    step = ImageStep(image)
    for record in records:
        step.replay(record)
    step.finish(0, 0)
    return image


def small() -> MetadataImage:
    """Three brokers; ``orders`` has two partitions on 1 and 2, and on 2 and 3."""
    return image_of(
        broker(1),
        broker(2),
        broker(3),
        TopicRecord(name="orders", topic_id=ORDERS),
        partition(ORDERS, 0, (1, 2)),
        partition(ORDERS, 1, (2, 3)),
    )


def changed(image: MetadataImage, topic: str, index: int, **fields: Any) -> Change:
    """A change of one partition."""
    known = image.topics[topic]
    before = known.partitions[index]
    return Change(partitions=(PartitionStep(topic, known.topic_id, before, replace(before, **fields)),))


def deleted(image: MetadataImage, topic: str) -> Change:
    """A change that deletes a topic."""
    known = image.topics[topic]
    steps = tuple(PartitionStep(topic, known.topic_id, before, None) for before in known.partitions.values())
    return Change(topics_deleted=(known,), partitions=steps)


def created(name: str, topic_id: bytes, *assignment: Sequence[int]) -> Change:
    """A change that creates a topic.

    :param assignment: the replicas of each partition
    """
    partitions = [partition(topic_id, number, replicas) for number, replicas in enumerate(assignment)]
    topic = image_of(TopicRecord(name=name, topic_id=topic_id), *partitions).topics[name]
    steps = tuple(PartitionStep(name, topic_id, None, after) for after in topic.partitions.values())
    return Change(topics_created=(topic,), partitions=steps)
