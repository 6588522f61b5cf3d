"""Placement of the replicas of new partitions. Pure and deterministic.

Round robin without racks: partition ``n`` of the cluster starts at broker ``n mod brokers``, and its
replicas follow. Active brokers come first; fenced ones fill up where there are too few, as in Kafka.
"""

from __future__ import annotations

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.wire.errors import BrokerError, ErrorCode


def place(image: MetadataImage, partitions: int, replication_factor: int, start: int) -> list[list[int]]:
    """Returns the replicas of each new partition. The first replica is active and leads.

    :param start: number of partitions that exist already, so that the load goes round
    :raises BrokerError: INVALID_REPLICATION_FACTOR: too few brokers, or none that is active
    """
    active = sorted(b for b in image.brokers if image.is_active(b))
    passive = sorted(b for b, broker in image.brokers.items() if b not in active and broker.fenced)
    there = len(active) + len(passive)
    if replication_factor > there:
        raise BrokerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"a replication factor of {replication_factor} cannot be reached because only {there} "
            f"broker(s) are registered",
        )
    if not active:
        raise BrokerError(
            ErrorCode.INVALID_REPLICATION_FACTOR, "all brokers are currently fenced or in controlled shutdown"
        )
    placed = []
    for number in range(start, start + partitions):
        turned = _turned(active, number) + _turned(passive, number)
        placed.append(turned[:replication_factor])
    return placed


def _turned(brokers: list[int], by: int) -> list[int]:
    if not brokers:
        return []
    at = by % len(brokers)
    return brokers[at:] + brokers[:at]
