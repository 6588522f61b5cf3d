"""ConsumerGroupHeartbeat v0–1: join, stay, leave (KIP-848)."""

from __future__ import annotations

import attrs

from blumfeld.spi.context import RequestContext
from blumfeld.spi.groups import Decision
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from blumfeld_groups_kip848.conversion.upgrade import take_over
from blumfeld_groups_kip848.edit import Edit
from blumfeld_groups_kip848.group import LEFT_FOR_A_WHILE, ConsumerGroup, Member
from blumfeld_groups_kip848.members.departures import fence, leave_for_a_while
from blumfeld_groups_kip848.members.lookup import check_epoch, check_size, joining_member, known_member
from blumfeld_groups_kip848.members.requests import MEMBER_ID_SINCE_VERSION, check_request
from blumfeld_groups_kip848.steps import GroupSteps
from blumfeld_groups_kip848.targets import regex, subscriptions
from blumfeld_groups_kip848.targets.reconciliation import Reported


def heartbeat(
    steps: GroupSteps, request: ConsumerGroupHeartbeatRequest, context: RequestContext, now_ms: int
) -> Decision:
    """Decide on one ConsumerGroupHeartbeat.

    :raises BrokerError: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR, INVALID_REGULAR_EXPRESSION,
        GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, GROUP_MAX_SIZE_REACHED, FENCED_MEMBER_EPOCH,
        UNRELEASED_INSTANCE_ID, FENCED_INSTANCE_ID, TOPIC_AUTHORIZATION_FAILED, UNSUPPORTED_VERSION
    """
    check_request(request, context, steps.settings.assignors)
    if request.member_epoch < 0:
        return _leave(steps, request, now_ms)
    edit = _edit(steps, request, now_ms)
    member_id = request.member_id
    if not member_id and context.api_version < MEMBER_ID_SINCE_VERSION:
        member_id = steps.surroundings.new_member_id(context.client_id)
    check_size(edit.group, member_id, steps.settings.size_max)
    owned = reported(request)
    if request.member_epoch == 0:
        member = joining_member(edit, member_id, request.instance_id)
    else:
        member = known_member(edit.group, member_id, request.instance_id)
        check_epoch(member, request.member_epoch, owned)
    subscribed = _describe(edit, member, request, context)
    if subscribed:
        subscriptions.forget_unused(edit)
    steps.refresh(edit, edit.unsettled or (subscribed and _is_to_be_dealt(edit, member)))
    now = steps.reconcile(
        edit, member_id, owned, subscription_changed=subscribed, joins=request.member_epoch == 0
    )
    steps.start_session(edit, now)
    steps.order_resolution(edit, member_id, context)
    full = request.member_epoch == 0 or (
        owned is not None
        and request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
    )
    return edit.decision(
        ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=now.epoch,
            heartbeat_interval_ms=steps.settings.heartbeat_interval_ms(edit.group_id),
            assignment=assignment_of(now) if full or _differ(member, now) else None,
        )
    )


def _edit(steps: GroupSteps, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> Edit:
    """An edit of the existing group or of a new one. If another type has a group with this id, the new group
    is converted from it.
    """
    group_id = request.group_id
    group = steps.groups.get(group_id)
    if group is not None:
        return Edit(group, now_ms)
    if request.member_epoch != 0:
        raise _no_group(steps, group_id, "Consumer group")
    edit = Edit(ConsumerGroup(group_id), now_ms)
    other = steps.surroundings.owner(group_id)
    if other is not None:
        settings = steps.settings
        take_over(edit, other, settings.migration_policy, settings.size_max, steps.image())
        steps.start_sessions(edit)
    return edit


def _no_group(steps: GroupSteps, group_id: str, called: str = "Group") -> BrokerError:
    other = steps.surroundings.owner(group_id) is not None
    text = f"Group {group_id} is not a consumer group." if other else f"{called} {group_id} not found."
    return BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, text)


def _leave(steps: GroupSteps, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> Decision:
    group = steps.groups.get(request.group_id)
    if group is None:
        raise _no_group(steps, request.group_id)
    member = known_member(group, request.member_id, request.instance_id)
    edit = Edit(group, now_ms)
    if request.instance_id is not None and request.member_epoch == LEFT_FOR_A_WHILE:
        leave_for_a_while(edit, member)
    else:
        fence(edit, [member.member_id], steps)
    return edit.decision(
        ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    )


def _describe(
    edit: Edit, member: Member, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> bool:
    """Write the member's metadata if it changed. Returns whether its subscription changed."""
    is_new = member.member_id not in edit.group.members
    if not is_new and _says_nothing_new(member, request, context):
        return False
    names = request.subscribed_topic_names
    pattern = request.subscribed_topic_regex
    described = attrs.evolve(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=context.client_id,
        client_host=f"/{context.peer_host}",
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
        subscribed_topics=member.subscribed_topics if names is None else tuple(sorted(set(names))),
        subscribed_regex=member.subscribed_regex if pattern is None else pattern,
        server_assignor=member.server_assignor
        if request.server_assignor is None
        else request.server_assignor,
        classic=None,
    )
    if not is_new and described == member:
        return False
    if described.subscribed_regex and described.subscribed_regex != member.subscribed_regex:
        regex.check(described.subscribed_regex)
    edit.put_member(described)
    return (described.subscribed_topics, described.subscribed_regex) != (
        member.subscribed_topics,
        member.subscribed_regex,
    )


def _is_to_be_dealt(edit: Edit, before: Member) -> bool:
    """Whether the member's new subscription asks for a new target at once. It doesn't if only its expression is
    another one, whose topics are still to come: their resolution asks for it, as in Kafka.
    """
    now = edit.group.members[before.member_id]
    return now.subscribed_topics != before.subscribed_topics or subscriptions.is_resolved(edit.group, now)


def _says_nothing_new(
    member: Member, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> bool:
    """Whether the request only keeps the session alive, as nearly all heartbeats do."""
    return (
        request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.server_assignor is None
        and request.rack_id is None
        and request.rebalance_timeout_ms == -1
        and member.classic is None
        and (request.instance_id is None or request.instance_id == member.instance_id)
        and context.client_id == member.client_id
        and f"/{context.peer_host}" == member.client_host
    )


def reported(request: ConsumerGroupHeartbeatRequest) -> Reported | None:
    """Topic id → partitions that the member reports as owned; ``None`` if the request leaves them out."""
    if request.topic_partitions is None:
        return None
    return {bytes(topic.topic_id): topic.partitions for topic in request.topic_partitions}


def assignment_of(member: Member) -> Assignment:
    """The partitions that the member may read now, topics and partitions in ascending order."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in sorted(member.assigned.items())
        ]
    )


def _differ(before: Member, now: Member) -> bool:
    """Whether the two sets of partitions differ; epochs do not count."""
    if before.assigned is now.assigned:
        return False
    return before.assigned.keys() != now.assigned.keys() or any(
        before.assigned[topic_id].keys() != partitions.keys() for topic_id, partitions in now.assigned.items()
    )
