"""One decision on one group while it is made. The decision sees its own writes at once.

A decision often takes several steps that build on each other: a member joins, so the group's epoch goes up,
so there is a new target, so the member gets partitions. ``Edit.group`` is the group as if all records so far
had been replayed. The shard's group changes only when the runtime replays the records.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from blumfeld.coordinator.groups.records import record
from blumfeld.spi.assignors import Assigned
from blumfeld.spi.groups import CoordinatorRecord, Decision, TimerOrder
from blumfeld.wire.messages import group_coordinator_records as log
from blumfeld.wire.schema import Message
from blumfeld_groups_kip848.group import ConsumerGroup, Member, Owned, ResolvedRegex
from blumfeld_groups_kip848.replay import replay


class Edit:
    """The records, timers and answers of one decision in order, with the group that results from them."""

    def __init__(self, group: ConsumerGroup, now_ms: int) -> None:
        """``group`` may be a new group that the shard does not have yet."""
        self.group = group
        self.now_ms = now_ms
        self.records: list[CoordinatorRecord] = []
        self.timers: list[TimerOrder] = []
        self.answers: list[tuple[Hashable, Any]] = []
        self.unsettled = False
        """Whether the group was converted in the middle of a rebalance: the target must then be computed
        again.
        """
        self.if_refused: Any = None
        """The command to decide on if the log refuses the records."""
        self.if_too_large: Any = None
        """The command to decide on instead if a record is larger than the log takes."""
        self._is_draft = False

    @property
    def group_id(self) -> str:
        """Id of the group that the decision changes."""
        return self.group.group_id

    def write(self, key: Message, value: Message | None) -> None:
        """Append a record (``None`` is a tombstone) and apply it to ``group``. To end a group, use
        :meth:`end_group`.
        """
        if not self._is_draft:
            self.group, self._is_draft = self.group.draft(), True
        self.records.append(record(key, value))
        replay(self.group, key, value)

    def put_epoch(self, epoch: int, metadata_hash: int) -> None:
        """Write the group's new epoch."""
        key = log.ConsumerGroupMetadataKey(group_id=self.group_id)
        self.write(key, log.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash))

    def put_member(self, member: Member) -> None:
        """Write a member's metadata and subscription, without its assignment."""
        key = log.ConsumerGroupMemberMetadataKey(group_id=self.group_id, member_id=member.member_id)
        self.write(key, _member_value(member))

    def put_assignment(self, member: Member) -> None:
        """Write a member's epoch, state and partitions, without its metadata."""
        key = log.ConsumerGroupCurrentMemberAssignmentKey(group_id=self.group_id, member_id=member.member_id)
        value = log.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state,
            assigned_partitions=_owned_topics(member.assigned),
            partitions_pending_revocation=_owned_topics(member.revoking),
        )
        self.write(key, value)

    def put_target(self, member_id: str, assigned: Assigned) -> None:
        """Write a member's target. It counts once the target epoch is written."""
        key = log.ConsumerGroupTargetAssignmentMemberKey(group_id=self.group_id, member_id=member_id)
        topics = [
            log.TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in sorted(assigned.items())
        ]
        self.write(key, log.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics))

    def put_target_epoch(self, epoch: int, time_ms: int | None = None) -> None:
        """Write the target epoch, after all of its targets. ``time_ms`` is the time when they were computed;
        the default is now.
        """
        key = log.ConsumerGroupTargetAssignmentMetadataKey(group_id=self.group_id)
        value = log.ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=self.now_ms if time_ms is None else time_ms
        )
        self.write(key, value)

    def put_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """Write the topics that a regular expression matches; ``None`` if no member subscribes by it any
        more.
        """
        key = log.ConsumerGroupRegularExpressionKey(group_id=self.group_id, regular_expression=regex)
        value = None
        if resolved is not None:
            value = log.ConsumerGroupRegularExpressionValue(
                topics=list(resolved.topics),
                version=resolved.image_version,
                timestamp=resolved.resolved_at_ms,
            )
        self.write(key, value)

    def remove_member(self, member_id: str) -> None:
        """Remove a member. Its partitions become free."""
        group_id = self.group_id
        for key in (
            log.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
            log.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
            log.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id),
        ):
            self.write(key, None)

    def end_group(self) -> None:
        """Write tombstones for all records of the group in Kafka's order. No other record may follow."""
        group_id = self.group_id
        members, targets = list(self.group.members), list(self.group.targets)
        ended: Iterable[Message] = [
            *(log.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=m) for m in members),
            *(log.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=m) for m in targets),
            log.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
            *(log.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=m) for m in members),
            *(
                log.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
                for regex in self.group.regexes
            ),
            log.ConsumerGroupMetadataKey(group_id=group_id),
        ]
        self.records += [record(key, None) for key in ended]

    def timer(self, key: tuple[str, ...], delay_ms: int | None, command: Any = None) -> None:
        """Order ``command`` after the delay; ``None`` cancels the timer."""
        self.timers.append(TimerOrder(key, delay_ms, command))

    def answer(self, token: Hashable, reply: Any) -> None:
        """Answer a waiting request."""
        self.answers.append((token, reply))

    def decision(self, reply: Any = None, token: Hashable | None = None) -> Decision:
        """The whole decision, with the reply to the current request or the token under which it waits."""
        return Decision(
            records=self.records,
            reply=reply,
            timers=self.timers,
            deferred=token,
            answers=self.answers,
            if_refused=self.if_refused,
            if_too_large=self.if_too_large,
        )


def _member_value(member: Member) -> log.ConsumerGroupMemberMetadataValue:
    classic = member.classic
    return log.ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.subscribed_topics),
        subscribed_topic_regex=member.subscribed_regex or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=None
        if classic is None
        else log.ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                log.ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols
            ],
        ),
    )


def _owned_topics(owned: Owned) -> list[log.ConsumerGroupCurrentMemberAssignmentValueTopicPartitions]:
    return [
        log.ConsumerGroupCurrentMemberAssignmentValueTopicPartitions(
            topic_id=topic_id, partitions=list(partitions), assignment_epochs=list(partitions.values())
        )
        for topic_id, partitions in owned.items()
    ]
