"""Encoding of ConsumerProtocolSubscription and ConsumerProtocolAssignment, the bytes that classic consumers
send and receive. An int16 version stands in front of each (Kafka's ``ConsumerProtocol``).

These bytes name topics; a KIP-848 group uses topic ids. A topic that does not exist is left out in the
translation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from blumfeld.spi.assignors import Assigned
from blumfeld.spi.cluster import ClusterImage
from blumfeld.wire.codec import decode_from, encode
from blumfeld.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from blumfeld.wire.primitives import DecodeError
from blumfeld.wire.schema import Message
from blumfeld_groups_kip848.group import Owned

VERSION_MAX = 3
PROTOCOL_TYPE = "consumer"
"""Protocol type of consumers in JoinGroup: the only type whose bytes the broker can read."""

M = TypeVar("M", bound=Message)


def version_of(data: bytes) -> int | None:
    """Version of the bytes, lowered to the newest known version; ``None`` if they are too short to hold one."""
    version = int.from_bytes(data[:2], signed=True) if len(data) >= 2 else -1
    return min(version, VERSION_MAX) if version >= 0 else None


def subscription_of(metadata: bytes) -> ConsumerProtocolSubscription | None:
    """The consumer's subscription with its owned partitions; ``None`` if the bytes cannot be read."""
    return _read(ConsumerProtocolSubscription, metadata)


def assignment_of(data: bytes) -> ConsumerProtocolAssignment | None:
    """The leader's assignment. Empty bytes mean no partitions; ``None`` if the bytes cannot be read."""
    return _read(ConsumerProtocolAssignment, data) if data else ConsumerProtocolAssignment()


def assignment_bytes(assigned: Assigned | Owned, version: int, image: ClusterImage) -> bytes:
    """The assignment encoded for a member that speaks ``version``, topics and partitions in ascending order."""
    named: dict[str, list[int]] = {}
    for topic_id, partitions in assigned.items():
        topic = image.topic_by_id(topic_id)
        if topic is not None and partitions:
            named[topic.name] = sorted(partitions)
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=name, partitions=named[name])
            for name in sorted(named)
        ]
    )
    return version.to_bytes(2) + encode(assignment, version)


def by_topic_id(named: Iterable[Any], image: ClusterImage) -> Assigned:
    """Translate partitions of named topics (``topic``, ``partitions``) to partitions by topic id."""
    partitions: dict[bytes, frozenset[int]] = {}
    for item in named:
        topic = image.topics.get(item.topic)
        if topic is not None and item.partitions:
            partitions[topic.topic_id] = partitions.get(topic.topic_id, frozenset()) | frozenset(
                item.partitions
            )
    return partitions


def metadata_for(protocols: Iterable[tuple[str, bytes]], name: str | None) -> bytes:
    """The member's metadata for the named protocol; its first protocol's if it does not have that one."""
    known: Mapping[str, bytes] = dict(protocols)
    return known.get(name or "", next(iter(known.values()), b""))


def _read(message: type[M], data: bytes) -> M | None:
    version = version_of(data)
    if version is None:
        return None
    try:
        read, _ = decode_from(message, data, version, 2)
    except DecodeError:
        return None
    return read
