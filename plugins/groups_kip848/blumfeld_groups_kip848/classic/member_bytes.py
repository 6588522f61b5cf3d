"""The bytes that classic consumers send and receive: ConsumerProtocolSubscription and ConsumerProtocolAssignment, each
behind an int16 version (Kafka's ``ConsumerProtocol``).

These name topics, and a KIP-848 group knows topics by their ids. A topic that doesn't exist is left out.
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
"""Protocol type of JoinGroup: the only one whose bytes the broker can read."""

M = TypeVar("M", bound=Message)


def version_of(data: bytes) -> int | None:
    """The version that the bytes are in, at most the newest known; ``None`` if they say none."""
    version = int.from_bytes(data[:2], signed=True) if len(data) >= 2 else -1
    return min(version, VERSION_MAX) if version >= 0 else None


def subscription_of(metadata: bytes) -> ConsumerProtocolSubscription | None:
    """Returns the subscription with the owned partitions; ``None`` if the bytes aren't one."""
    return _read(ConsumerProtocolSubscription, metadata)


def assignment_of(data: bytes) -> ConsumerProtocolAssignment | None:
    """Returns the partitions that a leader assigned; none for no bytes. ``None`` if the bytes aren't an assignment."""
    return _read(ConsumerProtocolAssignment, data) if data else ConsumerProtocolAssignment()


def assignment_bytes(assigned: Assigned | Owned, version: int, image: ClusterImage) -> bytes:
    """An assignment for a member that speaks ``version``; topics and partitions in ascending order."""
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
    """Partitions of topics by name (``topic``, ``partitions``) as partitions of topics by id."""
    found: dict[bytes, frozenset[int]] = {}
    for item in named:
        topic = image.topics.get(item.topic)
        if topic is not None and item.partitions:
            found[topic.topic_id] = found.get(topic.topic_id, frozenset()) | frozenset(item.partitions)
    return found


def metadata_for(protocols: Iterable[tuple[str, bytes]], name: str | None) -> bytes:
    """Returns the metadata of a member for this protocol, or for its first protocol if it doesn't support this one."""
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
