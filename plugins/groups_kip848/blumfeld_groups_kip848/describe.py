"""ConsumerGroupDescribe v0–1: one command for each group, answers merged into one response."""

from __future__ import annotations

from typing import Any

import msgspec

from blumfeld.coordinator.groups.answers import authorized_operations, code_of
from blumfeld.coordinator.runtime.coordinator import gather
from blumfeld.spi.assignors import Assigned
from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import RequestContext
from blumfeld.spi.groups import Submit
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    TopicPartitions,
)
from blumfeld.wire.messages.consumer_group_describe import Member as DescribedMember
from blumfeld.wire.schema import Message
from blumfeld_groups_kip848.group import ConsumerGroup, Member

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
"""Values of the response's ``member_type`` (v1)."""


class DescribeConsumerGroup(msgspec.Struct, frozen=True):
    """A command: describe one group for ConsumerGroupDescribe."""

    group_id: str


class DescribeApi:
    """The handler's part of ConsumerGroupDescribe."""

    def __init__(self, submit: Submit) -> None:
        self._submit = submit

    def describe(self, request: ConsumerGroupDescribeRequest, context: RequestContext) -> Completion[Any]:
        """Ask the shard of each group and merge the answers in the order of the request. A group with a topic
        that the client may not describe gets TOPIC_AUTHORIZATION_FAILED.
        """
        group_ids = list(request.group_ids)
        parts = [self._one(group_id, context) for group_id in group_ids]
        whole: Completion[Any] = Completion()

        def merge(_done: object) -> None:
            groups = []
            for group_id, part in zip(group_ids, parts, strict=True):
                group = _refused(group_id, part.error) if part.error else _visible(part.result(), context)
                if request.include_authorized_operations and not group.error_code:
                    group.authorized_operations = authorized_operations(group_id, context)
                groups.append(group)
            whole.complete(ConsumerGroupDescribeResponse(groups=groups))

        gather(parts).when_done(merge)
        return whole

    def failed(self, request: ConsumerGroupDescribeRequest, code: int, message: str | None) -> Message:
        """A response with this error for each requested group."""
        return ConsumerGroupDescribeResponse(
            groups=[
                DescribedGroup(group_id=group_id, error_code=code, error_message=message)
                for group_id in request.group_ids
            ]
        )

    def _one(self, group_id: str, context: RequestContext) -> Completion[Any]:
        refused: Completion[Any] = Completion()
        if not group_id:
            refused.fail(BrokerError(ErrorCode.INVALID_GROUP_ID))
        elif not context.authorize("Describe", "Group", group_id):
            refused.fail(BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        else:
            return self._submit(group_id, DescribeConsumerGroup(group_id), context)
        return refused


def described(group: ConsumerGroup, assignor: str, image: ClusterImage) -> DescribedGroup:
    """The group's current state in wire form. Deleted topics are left out."""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=assignor,
        members=[
            _member(member, group.targets.get(member.member_id, {}), image)
            for member in group.members.values()
        ],
    )


def _member(member: Member, target: Assigned, image: ClusterImage) -> DescribedMember:
    return DescribedMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.subscribed_topics),
        subscribed_topic_regex=member.subscribed_regex,
        assignment=_assignment(_held(member), image),
        target_assignment=_assignment(target, image),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _held(member: Member) -> Assigned:
    """The partitions that the member may still be reading. These include partitions that it was told to give
    up and has not yet confirmed, as Kafka 4.3 shows them.
    """
    topics = dict.fromkeys([*member.assigned, *member.revoking])
    return {
        topic: frozenset([*member.assigned.get(topic, ()), *member.revoking.get(topic, ())])
        for topic in topics
    }


def _assignment(partitions: Assigned, image: ClusterImage) -> Assignment:
    shown = []
    for topic_id, indexes in partitions.items():
        topic = image.topic_by_id(topic_id)
        if topic is not None:
            shown.append(
                TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=sorted(indexes))
            )
    return Assignment(topic_partitions=shown)


def _visible(group: DescribedGroup, context: RequestContext) -> DescribedGroup:
    names = {
        topic.topic_name: None
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }
    if all(context.authorize("Describe", "Topic", name, quiet=True) for name in names):
        return group
    return DescribedGroup(
        group_id=group.group_id,
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        error_message="The group has described topic(s) that the client is not authorized to describe.",
    )


def _refused(group_id: str, error: BaseException) -> DescribedGroup:
    message = error.message if isinstance(error, BrokerError) else None
    return DescribedGroup(group_id=group_id, error_code=code_of(error), error_message=message)
