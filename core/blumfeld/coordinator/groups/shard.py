"""The groups shard: the groups of one partition of ``__consumer_offsets``, of all types.

It has what all types share: offsets, and listing, describing and deleting groups. Joining and leaving belong to the
group types, to which it routes commands and records. A group that only commits offsets ("simple") has no type, and
exists only by its offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from blumfeld.coordinator.groups.listing import listed, not_described
from blumfeld.coordinator.groups.offset_commands import OffsetCommands
from blumfeld.coordinator.groups.offset_expiry import end_of_simple, expire
from blumfeld.coordinator.groups.offset_values import OFFSET_KEY_TYPES, decode_key
from blumfeld.coordinator.groups.offsets import OffsetStore
from blumfeld.coordinator.groups.pending_offsets import PendingOffsets
from blumfeld.coordinator.groups.records import GROUP_KEY_TYPES, RecordTypes, decode_record, group_of
from blumfeld.coordinator.groups.txn_offset_commands import TxnOffsetCommands
from blumfeld.coordinator.runtime.counts import CoordinatorCounts
from blumfeld.coordinator.runtime.record_runs import RecordRun
from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.context import RequestContext
from blumfeld.spi.groups import (
    CoordinatorRecord,
    Decision,
    GroupProtocol,
    GroupShard,
    GroupSummary,
    Producer,
    TimerOrder,
)
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.delete_groups import DeletableGroupResult
from blumfeld.wire.messages.describe_groups import DescribedGroup
from blumfeld.wire.messages.group_coordinator_records import (
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataValue,
)
from blumfeld.wire.messages.list_groups import ListGroupsRequest
from blumfeld.wire.messages.offset_commit import OffsetCommitRequest
from blumfeld.wire.messages.offset_delete import OffsetDeleteRequest
from blumfeld.wire.messages.offset_fetch import OffsetFetchResponseGroup
from blumfeld.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from blumfeld.wire.schema import Message

EXPIRY_TIMER = ("", "offsets")
"""Key of the shard's own timer. No group type has an empty name, so no type's timer has this key."""
EXPIRED_RECORDS_MAX = 1_000
"""Tombstones in one decision. The last group may exceed it by its own; the rest follows in the next turn."""
EXPIRY_SLICE_OFFSETS = 2_000
"""Offsets that are checked for expiry before other requests get their turn."""


class FetchOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """A command: the committed offsets of one group, as OffsetFetch v8+ asks for them."""

    group_id: str
    member_id: str | None
    member_epoch: int
    topics: Sequence[tuple[str, Sequence[int]]] | None
    """(topic, partitions) to fetch; ``None`` asks for all."""
    require_stable: bool


class DescribeGroup(msgspec.Struct, frozen=True):
    """A command: one group of DescribeGroups."""

    group_id: str
    version: int


class DeleteGroup(msgspec.Struct, frozen=True):
    """A command: one group of DeleteGroups."""

    group_id: str


class ForgetTopics(msgspec.Struct, frozen=True):
    """A command: these topics were deleted, so remove all offsets that were committed for them."""

    topics: tuple[str, ...]
    topic_ids: tuple[bytes, ...] = ()
    """Ids of the deleted topics. Offsets for a new topic of the same name stay. Empty: all offsets of the names go."""


class ExpireOffsets(msgspec.Struct, frozen=True):
    """A timer's command: remove expired offsets and empty groups."""

    groups: tuple[str, ...] | None = None
    """Groups that are still to be checked; ``None`` begins with all groups."""


class TypeCommand(msgspec.Struct, frozen=True):
    """A command for one group type: from its own timer or its own handler."""

    group_type: str
    command: Any


class GroupsShard:
    """One partition's groups: a ``Shard`` for its host, and the ``Surroundings`` of the group types on it."""

    def __init__(
        self,
        protocols: Sequence[GroupProtocol],
        config: Any,
        image: Callable[[], ClusterImage],
        new_member_id: Callable[[str], str],
        counts: CoordinatorCounts | None = None,
    ) -> None:
        """:param counts: gets the events after the load. Replayed events of the past are not counted"""
        self.config = config
        self.image = image
        self.new_member_id = new_member_id
        self._counts = CoordinatorCounts()
        """Takes the counts during the load, and is thrown away by :meth:`loaded`."""
        self._counts_of_all = CoordinatorCounts() if counts is None else counts
        self.offsets = OffsetStore()
        self.pending = PendingOffsets()
        self._types: dict[str, GroupShard] = {p.name: p.new_shard(self) for p in protocols}
        self._of_record: dict[int, str] = {number: p.name for p in protocols for number in p.record_types}
        self._of_api: dict[int, list[str]] = {}
        self._guests_of_api: dict[int, list[str]] = {}
        for protocol in protocols:
            for key in protocol.apis:
                self._of_api.setdefault(key, []).append(protocol.name)
            for key in sorted(protocol.guest_apis):
                self._guests_of_api.setdefault(key, []).append(protocol.name)
        self._record_types: RecordTypes = {
            number: classes for p in protocols for number, classes in p.record_types.items()
        }
        self._retention_ms: int = config.int("offsets.retention.minutes") * 60_000
        self._expiry_interval_ms: int = config.int("offsets.retention.check.interval.ms")
        self._offset_commands = OffsetCommands(
            self.offsets, self.pending, self.owner, self._is_simple, config, image
        )
        self._txn_offset_commands = TxnOffsetCommands(self.owner, self._is_simple, config, image)

    def replay(self, item: CoordinatorRecord) -> None:
        """Apply one record. A record type that no loaded group type knows is ignored."""
        key, value = item.key, item.value
        if key[:2] in OFFSET_KEY_TYPES:
            self.offsets.replay_encoded(key, value)
            self._counts.offset_commits += value is not None
            if self.pending:
                self._overtake(key, value)
            return
        decoded = decode_record(self._record_types, item)
        if decoded is not None:
            number, typed_key, typed_value = decoded
            self._types[self._of_record[number]].replay(number, typed_key, typed_value)
            self._counts.rebalances_completed += _ends_rebalance(typed_value)
        if value is None and key[:2] in GROUP_KEY_TYPES:
            self.offsets.forget_group(group_of(key))

    def replay_run(self, run: RecordRun) -> None:
        """Apply the records of a batch in order, with the result of :meth:`replay` for each. Offsets are done in bulk,
        unless transactions are pending: then each plain record may overtake one."""
        if self.pending:
            for key, value in zip(*run, strict=True):
                self.replay(CoordinatorRecord(key, value))
        else:
            self.offsets.replay_run(run, lambda key, value: self.replay(CoordinatorRecord(key, value)))

    def _overtake(self, key: bytes, value: bytes | None) -> None:
        """Apply a plain offset record to the pending offsets: it is later in the log, so it wins over them."""
        forget_or_overtake = self.pending.forget if value is None else self.pending.overtake
        forget_or_overtake(*decode_key(key))

    def replay_transactional(self, item: CoordinatorRecord, producer: Producer) -> None:
        """Apply one record of a producer's transaction. The offset is pending until :meth:`end_transaction`."""
        if item.key[:2] not in OFFSET_KEY_TYPES or item.value is None:
            self.replay(item)  # no build writes such a record; Kafka applies it as a plain one, too
            return
        group_id, place = decode_key(item.key)
        self.pending.add(producer.producer_id, group_id, place, item)
        self.offsets.remember(group_id)

    def end_transaction(self, producer_id: int, committed: bool) -> bool:
        """Apply a marker: the pending offsets of the producer become committed, or are dropped. Returns whether
        :meth:`end_more` has to go on with a large transaction."""
        self._committed(self.pending.end(producer_id, committed))
        return self.pending.is_ending

    def end_more(self) -> bool:
        """Apply the next offsets of large transactions that have ended. Returns whether more are left."""
        if self.pending.is_ending:
            self._committed(self.pending.go_on())
        return self.pending.is_ending

    def _committed(self, ended: list[CoordinatorRecord]) -> None:
        for item in ended:
            self.offsets.replay_encoded(item.key, item.value)
            self._counts.offset_commits += 1

    def loaded(self, now_ms: int) -> Decision:
        """Returns the first records and timers of all group types, and the timer of the expiry."""
        self._counts = self._counts_of_all
        parts = [self._wrapped(name, shard.loaded(now_ms)) for name, shard in self._types.items()]
        return Decision(
            records=[item for part in parts for item in part.records],
            timers=[order for part in parts for order in part.timers] + [self._next_expiry()],
        )

    def _next_expiry(self) -> TimerOrder:
        return TimerOrder(EXPIRY_TIMER, self._expiry_interval_ms, ExpireOffsets())

    def _expire(self, groups: Sequence[str], now_ms: int) -> Decision:
        """Expire offsets of these groups: as many as one turn may check. A timer without delay continues with the
        rest."""
        records: list[CoordinatorRecord] = []
        seen = 0
        for at, group_id in enumerate(groups):
            if len(records) >= EXPIRED_RECORDS_MAX or seen >= EXPIRY_SLICE_OFFSETS:
                later = TimerOrder(EXPIRY_TIMER, 0, ExpireOffsets(tuple(groups[at:])))
                return Decision(records=records, timers=[later])
            seen += len(self.offsets.of_group(group_id)) + 1
            owner = self.owner(group_id)
            expired = expire(group_id, self.offsets, self.pending, owner, self._retention_ms, now_ms)
            self._counts.offsets_expired += sum(item.key[:2] in OFFSET_KEY_TYPES for item in expired)
            records += expired
        return Decision(records=records, timers=[self._next_expiry()])

    def _group_ids(self) -> list[str]:
        typed = [summary.group_id for shard in self._types.values() for summary in shard.summaries()]
        return list(dict.fromkeys([*typed, *self._simple_groups()]))

    def _simple_groups(self) -> list[str]:
        """Returns the groups that have or had offsets, with or without a type."""
        known = [*self.offsets.groups(), *self.pending.groups(), *self.offsets.emptied()]
        return list(dict.fromkeys(known))

    def command(self, command: Any, context: RequestContext | None, now_ms: int) -> Decision:
        """Decide on a request, or on a timer's command.

        :raises BrokerError: the request's error
        """
        match command:
            case TypeCommand(name, inner):
                return self._wrapped(name, self._types[name].command(inner, context, now_ms))
            case OffsetCommitRequest():
                assert context is not None
                return self._commit(command, context, now_ms)
            case TxnOffsetCommitRequest():
                assert context is not None
                return self._txn_offset_commands.commit(command, context.api_version, now_ms)
            case FetchOffsets():
                return Decision(reply=self._fetch(command))
            case OffsetDeleteRequest():
                return self._offset_commands.delete(command, self._group_exists(command.group_id))
            case ListGroupsRequest():
                return Decision(reply=listed(command, self.summaries()))
            case DescribeGroup():
                return Decision(reply=self._describe(command))
            case ForgetTopics():
                gone = self._offset_commands.of_topics_gone(command.topics, command.topic_ids)
                return Decision(records=gone, reply=True)
            case ExpireOffsets(groups):
                return self._expire(self._group_ids() if groups is None else groups, now_ms)
            case DeleteGroup():
                return self._delete(command.group_id)
            case _:
                assert context is not None
                name = self._type_for(context.api_key, command.group_id)
                return self._wrapped(name, self._types[name].command(command, context, now_ms))

    def owner(self, group_id: str) -> GroupShard | None:
        """Returns the type that has this group; ``None`` for an unknown or a simple group."""
        return next((shard for shard in self._types.values() if shard.owns(group_id)), None)

    def shard_of(self, group_type: str) -> GroupShard | None:
        """Returns the shard of a group type, or ``None`` if this build doesn't have the type."""
        return self._types.get(group_type)

    def _type_for(self, api_key: int, group_id: str) -> str:
        """Returns the type that handles an API for a group: the group's own type if it has the API or is a guest of it,
        otherwise the first type that has the API."""
        names = self._of_api.get(api_key)
        if not names:
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION)
        hosts = [*names, *self._guests_of_api.get(api_key, ())]
        return next((name for name in hosts if self._types[name].owns(group_id)), names[0])

    def _wrapped(self, name: str, decision: Decision) -> Decision:
        """Prefix the timer keys of a type's decision with its name, and wrap its commands, so that they come back to
        it."""
        if decision.timers:
            decision.timers = [_of_type(order.group_type or name, order) for order in decision.timers]
        if decision.if_refused is not None and not isinstance(decision.if_refused, TypeCommand):
            decision.if_refused = TypeCommand(name, decision.if_refused)
        if decision.if_too_large is not None and not isinstance(decision.if_too_large, TypeCommand):
            decision.if_too_large = TypeCommand(name, decision.if_too_large)
        return decision

    def _commit(self, request: OffsetCommitRequest, context: RequestContext, now_ms: int) -> Decision:
        checked = self._offset_commands.check_member(request, context, now_ms)
        owner = self._name_of_owner(request.group_id)
        if owner is not None:
            checked = self._wrapped(owner, checked)
        records, reply = self._offset_commands.commit(request, context.api_version, now_ms)
        return Decision(records=[*checked.records, *records], reply=reply, timers=checked.timers)

    def _fetch(self, command: FetchOffsets) -> OffsetFetchResponseGroup:
        owner = self.owner(command.group_id)
        if owner is not None:
            owner.check_fetch(command.group_id, command.member_id, command.member_epoch)
        return self._offset_commands.fetch(command.group_id, command.topics, command.require_stable)

    def _name_of_owner(self, group_id: str) -> str | None:
        return next((name for name, shard in self._types.items() if shard.owns(group_id)), None)

    def _group_exists(self, group_id: str) -> bool:
        return self.owner(group_id) is not None or self._is_simple(group_id)

    def _is_simple(self, group_id: str) -> bool:
        """Whether the group has offsets, or had some that expired or were aborted. Without a type it is a simple
        group."""
        return (
            bool(self.offsets.of_group(group_id))
            or self.pending.has_group(group_id)
            or self.offsets.has_emptied(group_id)
        )

    def summaries(self) -> list[GroupSummary]:
        """Returns every group, also simple ones. A simple group without offsets is listed until the next expiry."""
        typed = [summary for shard in self._types.values() for summary in shard.summaries()]
        known = {summary.group_id for summary in typed}
        simple = [
            GroupSummary(group_id=group, group_type="classic", state="Empty", protocol_type="")
            for group in self._simple_groups()
            if group not in known
        ]
        return typed + simple

    def _describe(self, command: DescribeGroup) -> DescribedGroup:
        owner = self.owner(command.group_id)
        described = owner.describe(command.group_id) if owner else None
        if isinstance(described, DescribedGroup):
            return described
        if owner is None and self._is_simple(command.group_id):
            return DescribedGroup(group_id=command.group_id, group_state="Empty")
        return not_described(command.group_id, command.version, exists=owner is not None)

    def _delete(self, group_id: str) -> Decision:
        owner = self.owner(group_id)
        if owner is not None and not owner.is_empty(group_id):
            code = ErrorCode.NON_EMPTY_GROUP
        elif not self._group_exists(group_id):
            code = ErrorCode.GROUP_ID_NOT_FOUND
        else:
            ended = Decision(records=[end_of_simple(group_id)]) if owner is None else owner.delete(group_id)
            ended.records = [*self._offset_commands.of_group_gone(group_id), *ended.records]
            ended.reply = DeletableGroupResult(group_id=group_id)
            return ended
        return Decision(reply=DeletableGroupResult(group_id=group_id, error_code=code))


def _of_type(name: str, order: TimerOrder) -> TimerOrder:
    return TimerOrder((name, *order.key), order.delay_ms, TypeCommand(name, order.command))


def _ends_rebalance(value: Message | None) -> bool:
    """Whether the record ends a rebalance: it gives the group a new assignment."""
    if isinstance(value, GroupMetadataValue):
        return bool(value.members)
    return isinstance(value, ConsumerGroupTargetAssignmentMetadataValue)
