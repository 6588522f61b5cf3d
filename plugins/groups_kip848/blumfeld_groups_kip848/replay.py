"""Replay of one record into a group: the only code that changes a group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from blumfeld.spi.assignors import Assigned
from blumfeld.wire.messages.group_coordinator_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from blumfeld_groups_kip848.group import (
    LEFT,
    ClassicMember,
    ConsumerGroup,
    Member,
    MemberState,
    Owned,
    ResolvedRegex,
)


def replay(group: ConsumerGroup, key: Any, value: Any) -> None:
    """Apply a record other than the group's end. A tombstone for something absent does nothing."""
    match key:
        case ConsumerGroupMetadataKey():
            group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
        case ConsumerGroupMemberMetadataKey():
            _replay_member(group, key.member_id, value)
        case ConsumerGroupTargetAssignmentMetadataKey():
            group.target_epoch = -1 if value is None else value.assignment_epoch
            group.target_time_ms = 0 if value is None else value.assignment_timestamp
        case ConsumerGroupTargetAssignmentMemberKey():
            if value is None:
                group.targets.pop(key.member_id, None)
            else:
                group.targets[key.member_id] = _assigned(value.topic_partitions)
        case ConsumerGroupCurrentMemberAssignmentKey():
            _replay_assignment(group, key.member_id, value)
        case ConsumerGroupRegularExpressionKey():
            if value is None:
                group.regexes.pop(key.regular_expression, None)
            else:
                resolved = ResolvedRegex(tuple(value.topics), value.version, value.timestamp)
                group.regexes[key.regular_expression] = resolved


def _replay_member(
    group: ConsumerGroup, member_id: str, value: ConsumerGroupMemberMetadataValue | None
) -> None:
    known = group.members.get(member_id)
    if known is not None:
        _unsubscribe(group, known)
    if value is None:
        if known is not None:
            del group.members[member_id]
            group.owners.release(known.assigned, known.epoch)
            group.owners.release(known.revoking, known.epoch)
            if known.instance_id is not None and group.instances.get(known.instance_id) == member_id:
                del group.instances[known.instance_id]
        return
    classic = value.classic_member_metadata
    member = group.members[member_id] = attrs.evolve(
        known or Member(member_id),
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        subscribed_topics=tuple(value.subscribed_topic_names),
        subscribed_regex=value.subscribed_topic_regex or "",
        server_assignor=value.server_assignor,
        classic=None
        if classic is None
        else ClassicMember(
            classic.session_timeout_ms,
            tuple((protocol.name, bytes(protocol.metadata)) for protocol in classic.supported_protocols),
        ),
    )
    group.subscriptions[member.subscription] += 1
    if value.instance_id is not None:
        group.instances[value.instance_id] = member_id


def _unsubscribe(group: ConsumerGroup, member: Member) -> None:
    group.subscriptions[member.subscription] -= 1
    if group.subscriptions[member.subscription] <= 0:
        del group.subscriptions[member.subscription]


def _replay_assignment(
    group: ConsumerGroup, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None
) -> None:
    known = group.members.get(member_id) or Member(member_id)
    group.owners.release(known.assigned, known.epoch)
    group.owners.release(known.revoking, known.epoch)
    if value is None:
        if member_id in group.members:
            group.members[member_id] = attrs.evolve(
                known, epoch=LEFT, previous_epoch=LEFT, state=MemberState.STABLE, assigned={}, revoking={}
            )
        return
    member = attrs.evolve(
        known,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state),
        assigned=_owned(value.assigned_partitions, value.member_epoch),
        revoking=_owned(value.partitions_pending_revocation, value.member_epoch),
    )
    if member_id not in group.members:
        # Compaction can leave only this newer record, without the older one that it builds on.
        group.subscriptions[member.subscription] += 1
    group.members[member_id] = member
    group.owners.take(member.assigned, member.epoch)
    group.owners.take(member.revoking, member.epoch)


def _assigned(topics: Iterable[Any]) -> Assigned:
    return {bytes(topic.topic_id): frozenset(topic.partitions) for topic in topics if topic.partitions}


def _owned(topics: Iterable[Any], member_epoch: int) -> Owned:
    """The partitions with their epochs. Brokers before 4.2 wrote no epoch per partition; the member's epoch
    stands in.
    """
    owned = {}
    for topic in topics:
        epochs = topic.assignment_epochs or [member_epoch] * len(topic.partitions)
        if topic.partitions:
            owned[bytes(topic.topic_id)] = dict(zip(topic.partitions, epochs, strict=True))
    return owned
