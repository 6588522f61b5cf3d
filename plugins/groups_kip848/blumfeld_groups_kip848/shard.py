"""The KIP-848 groups of one shard: a deterministic state machine without a clock (``spi.groups.GroupShard``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blumfeld.spi.assignors import ConsumerAssignor
from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.context import RequestContext
from blumfeld.spi.groups import (
    SINCE_COMMIT,
    CommitCheck,
    CoordinatorRecord,
    Decision,
    GroupExport,
    GroupSummary,
    Surroundings,
    TimerOrder,
)
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.consumer_group_describe import DescribedGroup
from blumfeld.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from blumfeld.wire.schema import Message, Struct
from blumfeld_groups_kip848.classic.members import ClassicMembers
from blumfeld_groups_kip848.conversion import downgrade, upgrade
from blumfeld_groups_kip848.describe import DescribeConsumerGroup, described
from blumfeld_groups_kip848.edit import Edit
from blumfeld_groups_kip848.group import ConsumerGroup, GroupState, MemberState
from blumfeld_groups_kip848.members import commits
from blumfeld_groups_kip848.members.departures import fence
from blumfeld_groups_kip848.members.heartbeat import heartbeat
from blumfeld_groups_kip848.record_types import GROUP_EPOCH
from blumfeld_groups_kip848.replay import replay
from blumfeld_groups_kip848.steps import GroupSteps
from blumfeld_groups_kip848.targets import subscriptions
from blumfeld_groups_kip848.targets.computation import (
    AssignmentDue,
    AssignRefused,
    AssignSlice,
    AssignTooLarge,
)
from blumfeld_groups_kip848.targets.resolutions import ResolveRefused, ResolveSlice, ResolveTooLarge
from blumfeld_groups_kip848.timers import RebalanceExpired, SessionExpired, start_rebalance

GROUP_VERSION = "group.version"
"""The feature that enables KIP-848 groups."""
NOT_ENABLED = (
    "this cluster has no group.version, which group.protocol=consumer (KIP-848) needs; set group.protocol=classic, "
    "or upgrade the feature where the cluster isn't on a ZooKeeper"
)


class ConsumerGroups:
    """All KIP-848 groups whose ids hash to this shard's partition."""

    def __init__(self, surroundings: Surroundings, assignors: Sequence[ConsumerAssignor]) -> None:
        self._steps = GroupSteps(surroundings, assignors)
        self.groups = self._steps.groups
        self.surroundings = surroundings
        self._targets = self._steps.targets
        self._classic_members = ClassicMembers(self._steps)

    def image(self) -> ClusterImage:
        """The current cluster image."""
        return self.surroundings.image()

    # Replay of the log

    def replay(self, record_type: int, key: Any, value: Message | None) -> None:
        """Apply one record. A tombstone of the group's epoch ends the group; another record for an unknown
        group creates it.
        """
        group = self.groups.get(key.group_id)
        if record_type == GROUP_EPOCH and value is None:
            self._steps.forget(key.group_id)
            return
        if group is None:
            if value is None:
                return
            group = self.groups[key.group_id] = ConsumerGroup(key.group_id)
        replay(group, key, value)

    def loaded(self, now_ms: int) -> Decision:
        """Start every member's session anew, and the rebalance timer of each member that must give up
        partitions. Call this once, after the log is loaded.
        """
        records: list[CoordinatorRecord] = []
        timers: list[TimerOrder] = []
        for group in self.groups.values():
            edit = Edit(group, now_ms)
            self._steps.start_sessions(edit)
            for member in group.members.values():
                if member.classic is None and member.state is MemberState.UNREVOKED_PARTITIONS:
                    start_rebalance(edit, member)
            self._targets.update_later(edit)
            timers += edit.timers
            records += upgrade.settle(edit, self.surroundings.shard_of("classic"))
        return Decision(records=records, timers=timers)

    # Commands

    def command(self, request: Any, context: RequestContext | None, now_ms: int) -> Decision:
        """Decide on ConsumerGroupHeartbeat, on a classic member's request, or on a timer.

        :raises BrokerError: the request's error
        """
        match request:
            case ConsumerGroupHeartbeatRequest():
                assert context is not None
                if not self.image().features.get(GROUP_VERSION):
                    raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, NOT_ENABLED)
                return heartbeat(self._steps, request, context, now_ms)
            case DescribeConsumerGroup():
                return Decision(reply=self._described(request.group_id))
            case SessionExpired() | RebalanceExpired():
                return self._expired(request, now_ms)
            case ResolveSlice() | ResolveRefused() | ResolveTooLarge():
                return self._steps.resolutions.command(request, now_ms)
            case AssignSlice() | AssignmentDue() | AssignRefused() | AssignTooLarge():
                group = self.groups.get(request.group_id)
                if group is None:
                    return Decision()
                edit = Edit(group, now_ms)
                self._targets.command(request, edit)
                return edit.decision()
            case _:
                return self._classic_members.command(request, context, now_ms)

    def _expired(self, expired: SessionExpired | RebalanceExpired, now_ms: int) -> Decision:
        group = self.groups.get(expired.group_id)
        member = None if group is None else group.members.get(expired.member_id)
        if group is None or member is None:
            return Decision()
        if isinstance(expired, RebalanceExpired) and expired.epoch != member.epoch:
            return Decision()
        edit = Edit(group, now_ms)
        fence(edit, [member.member_id], self._steps)
        return edit.decision()

    # Calls from other parts of the shard

    def owns(self, group_id: str) -> bool:
        """Whether the group is on this shard."""
        return group_id in self.groups

    def summaries(self) -> Sequence[GroupSummary]:
        """Summaries of all groups on this shard."""
        return [
            GroupSummary(
                group_id=group.group_id,
                group_type="consumer",
                state=group.state.value,
                protocol_type="consumer",
            )
            for group in self.groups.values()
        ]

    def describe(self, group_id: str) -> Struct | None:
        """Always ``None``: DescribeGroups covers classic groups only and shows these as dead, as Kafka does."""
        return None

    def _described(self, group_id: str) -> DescribedGroup:
        group = self.groups.get(group_id)
        if group is None:
            other = self.surroundings.owner(group_id) is not None
            text = f"Group {group_id} is not a consumer group." if other else f"Group {group_id} not found."
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, text)
        return described(group, self._targets.assignor_of(group), self.image())

    def check_commit(self, commit: CommitCheck, now_ms: int) -> Decision:
        """Check that offsets may be committed. A commit does not count as a heartbeat.

        :raises BrokerError: as :func:`commits.check_commit`
        """
        commits.check_commit(self.groups[commit.group_id], commit, self.image)
        return Decision()

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> None:
        """Check that offsets may be read.

        :raises BrokerError: as :func:`commits.check_fetch`
        """
        commits.check_fetch(self.groups[group_id], member_id, member_epoch)

    def check_delete_offsets(self, group_id: str) -> None:
        """Offsets may always be deleted: the broker knows which topics are subscribed and protects them
        itself.
        """

    def is_subscribed(self, group_id: str, topic: str) -> bool:
        """Whether any member subscribes to the topic."""
        group = self.groups[group_id]
        return any(topic in subscriptions.topics_of(group, member) for member in group.members.values())

    def offsets_idle_since(self, group_id: str) -> int | None:
        """Offsets expire by their commit time in every state, because the broker knows which topics are
        subscribed.
        """
        return SINCE_COMMIT

    def is_empty(self, group_id: str) -> bool:
        """Whether the group has no members."""
        return self.groups[group_id].state is GroupState.EMPTY

    def delete(self, group_id: str) -> Decision:
        """Write the group's tombstones in Kafka's order."""
        edit = Edit(self.groups[group_id], 0)
        self._steps.stop_timers(edit)
        edit.end_group()
        return edit.decision()

    def export_group(self, group_id: str) -> GroupExport:
        """The group in the neutral form that another group type can import (KIP-848, Kafka's
        ``GroupMetadataManager``).
        """
        return downgrade.exported(self.groups[group_id], self.image())

    def import_group(self, group: GroupExport, now_ms: int) -> Decision:
        """Write the records that make the group a KIP-848 group.

        :raises BrokerError: GROUP_ID_NOT_FOUND: the group cannot be converted
        """

        edit = Edit(ConsumerGroup(group.group_id), now_ms)
        upgrade.convert(edit, group, self.image())
        self._steps.start_sessions(edit)
        return edit.decision()
