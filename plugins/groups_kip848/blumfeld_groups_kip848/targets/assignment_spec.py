"""The input of an assignor for one group, and the checks of its result."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from blumfeld.spi.assignors import (
    AssignableMember,
    AssignableTopic,
    Assigned,
    Assignment,
    AssignmentSpec,
    AssignorError,
)
from blumfeld.spi.cluster import ClusterImage, TopicImage
from blumfeld_groups_kip848.group import ConsumerGroup
from blumfeld_groups_kip848.targets.subscriptions import rack_of_brokers, subscribed_topics, topics_of

_NOTHING: Assigned = {}


def is_larger(group: ConsumerGroup, image: ClusterImage, size_max: int) -> bool:
    """Whether an assignment has more than ``size_max`` members and partitions. Its cost grows with their number."""
    size = len(group.members)
    for name in subscribed_topics(group):
        if size > size_max:
            break
        topic = image.topics.get(name)
        size += 0 if topic is None else len(topic.partitions)
    return size > size_max


def assignment_spec(group: ConsumerGroup, image: ClusterImage) -> Generator[int, None, AssignmentSpec]:
    """An immutable description of the group for an assignor. The group may change meanwhile, because this
    generator yields between slices, as assignors do.
    """
    subscribed = [image.topics[name] for name in subscribed_topics(group) if name in image.topics]
    ids = {topic.name: topic.topic_id for topic in subscribed}
    racks = rack_of_brokers(image)
    with_racks = bool(racks) and any(member.rack_id for member in group.members.values())
    topics: dict[bytes, AssignableTopic] = {}
    for topic in subscribed:
        topics[topic.topic_id] = _topic(topic, racks if with_racks else {})
        yield len(topic.partitions) if with_racks else 1
    members: dict[str, AssignableMember] = {}
    ids_of: dict[tuple[tuple[str, ...], str], frozenset[bytes]] = {}
    for member_id in sorted(group.members):
        member = group.members[member_id]
        subscription = (member.subscribed_topics, member.subscribed_regex)
        if subscription not in ids_of:
            names = topics_of(group, member)
            ids_of[subscription] = frozenset(ids[name] for name in names if name in ids)
            yield len(names)
        members[member_id] = AssignableMember(
            member_id=member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            topics=ids_of[subscription],
            assigned=group.targets.get(member_id, _NOTHING),
        )
        yield 2
    return AssignmentSpec(members=members, topics=topics)


def _topic(topic: TopicImage, racks: Mapping[int, str]) -> AssignableTopic:
    near: tuple[frozenset[str], ...] = ()
    if racks:
        places: dict[tuple[int, ...], frozenset[str]] = {}
        for _, partition in sorted(topic.partitions.items()):
            replicas = partition.replicas
            if replicas not in places:
                places[replicas] = frozenset(racks[broker] for broker in replicas if broker in racks)
        near = tuple(places[partition.replicas] for _, partition in sorted(topic.partitions.items()))
    return AssignableTopic(
        topic_id=topic.topic_id, name=topic.name, partition_count=len(topic.partitions), racks=near
    )


def check(spec: AssignmentSpec, assignment: Assignment) -> Generator[int, None, None]:
    """Check an assignor's result: a wrong assignment must not reach the log.

    :raises AssignorError: it assigns a partition that does not exist, that the member does not subscribe to,
        or that another member has too
    """
    dealt: dict[bytes, set[int]] = {topic_id: set() for topic_id in spec.topics}
    for member_id, assigned in assignment.items():
        member = spec.members.get(member_id)
        if member is None:
            raise AssignorError(f"it assigned to {member_id}, who is no member")
        for topic_id, partitions in assigned.items():
            if topic_id not in member.topics:
                raise AssignorError(f"it assigned to {member_id} a topic that it doesn't subscribe to")
            topic, before = spec.topics[topic_id], dealt[topic_id]
            if not before.isdisjoint(partitions):
                raise AssignorError(f"it assigned a partition of {topic.name} to two members")
            if partitions and not (min(partitions) >= 0 and max(partitions) < topic.partition_count):
                raise AssignorError(f"it assigned a partition of {topic.name} that doesn't exist")
            before |= partitions
            yield len(partitions)
