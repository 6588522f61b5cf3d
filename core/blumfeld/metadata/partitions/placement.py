"""Replicas of new partitions: their racks, brokers and directories, and checks of a client's choice. Pure.

The placement is deterministic. Its goals are those of Kafka's ``StripedReplicaPlacer``, the first one first:

1. The replicas of a partition lie on as many racks as there are. Brokers without a rack count as one rack.
2. Within a rack, active brokers come before fenced ones. The first replica is active: it leads.
3. Leaders and followers go round: racks by one step for each partition, the brokers of a rack by one step for each
   round of leaders over the racks. A follower lies one step further on than the replica before it, so that partitions
   with one broker in common don't have all in common.

Kafka begins at random; here the number of partitions in the cluster says where to go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.partitions.directories import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.metadata_records import PartitionRecord


class _Rack(NamedTuple):
    """The brokers of one rack, each list sorted."""

    active: list[int]
    fenced: list[int]

    def broker(self, step: int, nth: int) -> int | None:
        """Returns the ``nth`` broker of the rack as it lies at this step; ``None`` behind the last."""
        if nth < len(self.active):
            return self.active[(step + nth) % len(self.active)]
        nth -= len(self.active)
        return self.fenced[(step + nth) % len(self.fenced)] if nth < len(self.fenced) else None


def place(image: MetadataImage, partitions: int, replication_factor: int, start: int) -> list[list[int]]:
    """Returns the replicas of each new partition. The first replica is active and leads.

    A broker in a controlled shutdown gets none. When it has stopped, it counts as fenced, as in Kafka.

    :param start: number of partitions that exist already, so that the load goes round
    :raises BrokerError: INVALID_REPLICATION_FACTOR: too few brokers, or none that is active
    """
    racks = _racks(image)
    leading = [at for at, rack in enumerate(racks) if rack.active]
    if not leading:
        raise BrokerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "All brokers are currently fenced or in controlled shutdown.",
        )
    there = sum(len(rack.active) + len(rack.fenced) for rack in racks)
    if replication_factor > there:
        raise BrokerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The target replication factor of {replication_factor} cannot be reached because only {there} "
            "broker(s) are registered.",
        )
    return [
        _placed(racks, leading[number % len(leading)], number // len(leading), replication_factor)
        for number in range(start, start + partitions)
    ]


def _racks(image: MetadataImage) -> list[_Rack]:
    racks: dict[str, _Rack] = {}
    for broker_id, broker in sorted(image.brokers.items()):
        if broker.fenced or not broker.in_controlled_shutdown:
            rack = racks.setdefault(broker.rack or "", _Rack([], []))
            (rack.fenced if broker.fenced else rack.active).append(broker_id)
    return [racks[name] for name in sorted(racks)]


def _placed(racks: Sequence[_Rack], first: int, step: int, replication_factor: int) -> list[int]:
    """Returns the replicas of one partition: one of each rack from rack ``first`` on, and so round by round."""
    replicas: list[int] = []
    nth = 0
    while True:
        for further in range(len(racks)):
            broker = racks[(first + further) % len(racks)].broker(step + further, nth)
            if broker is not None:
                replicas.append(broker)
                if len(replicas) == replication_factor:
                    return replicas
        nth += 1


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


def default_directory(image: MetadataImage, broker_id: int) -> bytes:
    """Returns the directory of a new replica: the broker's only one, or the reserved id that lets the broker
    choose.
    """
    broker = image.brokers.get(broker_id)
    if broker is None:
        return UNASSIGNED_DIRECTORY
    if not broker.log_dirs:
        return MIGRATING_DIRECTORY
    return broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED_DIRECTORY
