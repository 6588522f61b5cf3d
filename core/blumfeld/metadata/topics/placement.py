"""Which brokers get the replicas of new partitions. Pure, and without chance.

Rack-unaware round robin: partition ``n`` of the cluster starts at broker ``n mod brokers``, its replicas follow.
The brokers that may lead come first; fenced ones fill up, as Kafka does, where there are too few.
"""

from __future__ import annotations

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.wire.errors import BrokerError, ErrorCode


def place(image: MetadataImage, partitions: int, replication_factor: int, start: int) -> list[list[int]]:
    """Replicas of each new partition; the first of each is active and leads.

    :param start: how many partitions there are already, so that load goes round
    :raises BrokerError: INVALID_REPLICATION_FACTOR: fewer brokers than that, or none that may lead
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
