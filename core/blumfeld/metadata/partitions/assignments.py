"""Checks of replica assignments that a client gives, and new partitions as records. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.partitions.directories import default_directory
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.metadata_records import PartitionRecord


def check_assignment(
    image: MetadataImage, replicas: Sequence[int], replication_factor: int | None, *, new: bool = True
) -> None:
    """Check the replicas that a client chose for one partition.

    :param replication_factor: the required number of replicas; ``None`` for the first partition
    :param new: whether the partition is a new one: then one of the replicas must be active, to lead it
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
    elif new and not any(image.is_active(r) for r in replicas):
        problem = (
            "all brokers specified in the manual partition assignment are fenced or in controlled shutdown"
        )
    if problem is not None:
        raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def new_partition(
    image: MetadataImage, topic_id: bytes, number: int, replicas: Sequence[int]
) -> PartitionRecord:
    """Returns the record of a new partition. Its ISR is the active ones of ``replicas``; the first of them leads."""
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
    """Returns the number of partitions in the cluster: round-robin placement continues from there."""
    return image.index.count
