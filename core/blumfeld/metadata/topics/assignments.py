"""Replicas that a client chose itself, and new partitions as records. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.partitions.directories import default_directory
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.metadata_records import PartitionRecord


def check_assignment(image: MetadataImage, replicas: Sequence[int], replication_factor: int | None) -> None:
    """One partition's replicas, as a client gave them.

    :param replication_factor: how many there must be; ``None`` for the first partition
    :raises BrokerError: INVALID_REPLICA_ASSIGNMENT
    """
    problem = None
    if not replicas:
        problem = "the manual partition assignment includes an empty replica list"
    elif len(set(replicas)) != len(replicas):
        problem = "the manual partition assignment includes a broker more than once"
    elif unknown := [r for r in replicas if r not in image.brokers]:
        problem = (
            f"the manual partition assignment includes broker {unknown[0]}, but no such broker is registered"
        )
    elif replication_factor is not None and len(replicas) != replication_factor:
        problem = (
            f"the manual partition assignment includes a partition with {len(replicas)} replica(s), "
            f"but others have {replication_factor}"
        )
    elif not any(image.is_active(r) for r in replicas):
        problem = (
            "all brokers specified in the manual partition assignment are fenced or in controlled shutdown"
        )
    if problem is not None:
        raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def new_partition(
    image: MetadataImage, topic_id: bytes, number: int, replicas: Sequence[int]
) -> PartitionRecord:
    """A partition whose ISR is those of ``replicas`` that are active; the first of them leads."""
    isr = [r for r in replicas if image.is_active(r)]
    return PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[default_directory(image, replica) for replica in replicas],
    )


def partition_count(image: MetadataImage) -> int:
    """All partitions of the cluster: where round robin goes on."""
    return sum(len(topic.partitions) for topic in image.topics.values())
