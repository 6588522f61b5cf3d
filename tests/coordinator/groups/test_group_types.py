"""Two group types on one shard: whose a group is, how it changes hands, and handlers of a type's own.

The second type is a stand-in for KIP-848: it keeps the members that it was handed, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from blumfeld.coordinator.groups.records import record
from blumfeld.coordinator.runtime.coordinator import gather
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.groups import (
    CommitCheck,
    Decision,
    GroupExport,
    GroupShard,
    GroupSummary,
    Submit,
    Surroundings,
    TimerOrder,
)
from blumfeld.wire.api import ApiKey
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from blumfeld.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from blumfeld.wire.messages.delete_groups import DeleteGroupsRequest
from blumfeld.wire.messages.describe_groups import DescribeGroupsRequest
from blumfeld.wire.messages.group_coordinator_records import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
)
from blumfeld.wire.messages.heartbeat import HeartbeatRequest
from blumfeld.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from blumfeld.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from blumfeld.wire.messages.sync_group import SyncGroupRequest
from blumfeld.wire.schema import Message
from blumfeld_groups_classic import ClassicGroupProtocol
from tests.broker.handlers.groups.test_group_handlers import join, listed
from tests.coordinator.groups.test_offsets import commit, fetch
from tests.coordinator.groups_fixture import Groups

LEAVE, JOIN = -1, 0
"""Member epochs of ConsumerGroupHeartbeat."""


class ModernGroups:
    """``GroupShard``. The epoch is in the log; what was handed over is kept beside it, for the test only."""

    def __init__(self, surroundings: Surroundings) -> None:
        self.around = surroundings
        self.epochs: dict[str, int] = {}
        self.taken: dict[str, GroupExport] = {}
        self.commits: list[CommitCheck] = []

    def replay(self, record_type: int, key: Message, value: Message | None) -> None:
        assert isinstance(key, ConsumerGroupMetadataKey)
        if value is None:
            self.epochs.pop(key.group_id, None)
        else:
            assert isinstance(value, ConsumerGroupMetadataValue)
            self.epochs[key.group_id] = value.epoch

    def command(self, request: Any, context: RequestContext | None, now_ms: int) -> Decision:
        if isinstance(request, str) and context is None:
            return Decision()  # its timer
        if isinstance(request, str):
            return Decision(reply=DescribedGroup(group_id=request, group_epoch=self.epochs.get(request, -1)))
        if isinstance(request, ConsumerGroupHeartbeatRequest):
            return self._heartbeat(request, now_ms)
        raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _heartbeat(self, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> Decision:
        group_id = request.group_id
        key = ConsumerGroupMetadataKey(group_id=group_id)
        reply = ConsumerGroupHeartbeatResponse(member_epoch=request.member_epoch)
        if request.member_epoch == LEAVE:
            classic = self.around.shard_of("classic")
            assert classic is not None
            back = classic.import_group(replace(self.taken[group_id], rebalances=True), now_ms)
            timers = [replace(order, group_type="classic") for order in back.timers]
            return Decision(records=[record(key, None), *back.records], timers=timers, reply=reply)
        ended, owner = Decision(), self.around.owner(group_id)
        if owner is not None and owner is not self:
            self.taken[group_id] = owner.export_group(group_id)
            ended = owner.delete(group_id)
        return Decision(
            records=[*ended.records, record(key, ConsumerGroupMetadataValue(epoch=1))],
            answers=ended.answers,
            timers=[TimerOrder(("session", group_id, "m"), 5_000, group_id)],
            reply=reply,
        )

    def loaded(self, now_ms: int) -> Decision:
        return Decision()

    def owns(self, group_id: str) -> bool:
        return group_id in self.epochs

    def summaries(self) -> Sequence[GroupSummary]:
        return [
            GroupSummary(group_id=g, group_type="consumer", state="Stable", protocol_type="consumer")
            for g in self.epochs
        ]

    def describe(self, group_id: str) -> Message | None:
        return None

    def check_commit(self, commit: CommitCheck, now_ms: int) -> Decision:
        self.commits.append(commit)
        return Decision()

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> None:
        if member_id is not None and member_epoch != self.epochs[group_id]:
            raise BrokerError(ErrorCode.STALE_MEMBER_EPOCH)

    def check_delete_offsets(self, group_id: str) -> None:
        return

    def is_subscribed(self, group_id: str, topic: str) -> bool:
        return True

    def offsets_idle_since(self, group_id: str) -> int | None:
        return None

    def is_empty(self, group_id: str) -> bool:
        return False

    def delete(self, group_id: str) -> Decision:
        return Decision(records=[record(ConsumerGroupMetadataKey(group_id=group_id), None)])

    def export_group(self, group_id: str) -> GroupExport:
        return self.taken[group_id]

    def import_group(self, group: GroupExport, now_ms: int) -> Decision:
        raise NotImplementedError


class ModernProtocol:
    """``GroupProtocol``: APIs 68 and 69, and the classic ones for groups that it has."""

    name = "consumer"
    record_types: Mapping[int, tuple[type[Message], type[Message]]] = {
        3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue)
    }
    apis: Mapping[int, tuple[int, int]] = {
        ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1),
    }
    guest_apis: frozenset[int] = frozenset(
        {ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT, ApiKey.SYNC_GROUP, ApiKey.LEAVE_GROUP}
    )

    def __init__(self) -> None:
        self.shards: list[ModernGroups] = []

    def new_shard(self, surroundings: Surroundings) -> GroupShard:
        self.shards.append(ModernGroups(surroundings))
        return self.shards[-1]

    def handlers(self, submit: Submit) -> Sequence[ApiHandler]:
        def handle(request: ConsumerGroupDescribeRequest, context: RequestContext) -> Completion[Message]:
            described: Completion[Message] = Completion()

            def merge(done: Completion[list[Completion[Any]]]) -> None:
                groups = [item.result() for item in done.result()]
                described.complete(ConsumerGroupDescribeResponse(groups=groups))

            gather([submit(group, group, context) for group in request.group_ids]).when_done(merge)
            return described

        key = ApiKey.CONSUMER_GROUP_DESCRIBE
        return [ApiHandler(key=key, min_version=0, max_version=1, handle=handle, error_response=_no_error)]

    def error_response(self, request: Message, code: int, message: str | None) -> Message:
        return ConsumerGroupHeartbeatResponse(error_code=code)


def _no_error(*_: object) -> Message:
    raise AssertionError


class Both:
    """A shard with both types, and a classic group with one member, ``client-1``, in generation 1."""

    def __init__(self) -> None:
        self.protocol = ModernProtocol()
        self.groups = Groups(protocols=[ClassicGroupProtocol(), self.protocol])
        join(self.groups, "g")

    @property
    def modern(self) -> ModernGroups:
        return self.protocol.shards[-1]

    def heartbeat(self, epoch: int) -> int:
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch)
        code: int = self.groups.ask(request, 1).error_code
        return code

    def sync(self) -> Completion[Any]:
        request = SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id="client-1",
            protocol_type="consumer",
            protocol_name="range",
        )
        return self.groups.send(request)


def test_each_type_answers_for_its_own_groups() -> None:
    """A new group is that of the first type that has the API."""
    both = Both()
    assert listed(both.groups) == [("g", "CompletingRebalance", "classic")]
    both.modern.epochs["other"] = 7
    beat = both.groups.ask(HeartbeatRequest(group_id="other", member_id="m", generation_id=1))
    assert beat.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the owner's answer"
    beat = both.groups.ask(HeartbeatRequest(group_id="g", member_id="client-1", generation_id=1))
    assert beat.error_code == 0


def test_a_group_goes_over_to_another_type_with_its_offsets() -> None:
    """Tombstone and new records are one batch; whoever waited in it joins again; a reload finds it where it is."""
    both = Both()
    assert both.sync().result().error_code == 0
    commit(both.groups, member_id="client-1", generation_id_or_member_epoch=1)
    assert both.heartbeat(JOIN) == 0
    assert both.modern.taken["g"].members[0].member_id == "client-1"
    assert len(both.groups.log.batches[-1]) == 2
    for _ in range(2):
        assert listed(both.groups) == [("g", "Stable", "consumer")]
        assert list(fetch(both.groups)) == [("t", 0)]
        both.groups.reload()


def test_who_waits_in_a_group_that_goes_over_is_told() -> None:
    """Its request was the old type's; the answer comes with the new one's decision."""
    both = Both()
    join_2 = both.groups.send(_join_request())
    assert not join_2.done
    assert both.heartbeat(JOIN) == 0
    assert join_2.result().error_code == ErrorCode.REBALANCE_IN_PROGRESS


def _join_request() -> Message:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        group_instance_id="one",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def test_a_group_comes_back_and_rebalances() -> None:
    """With the classic type's own timers: members that don't join again are out in the end."""
    both = Both()
    both.sync()
    both.heartbeat(JOIN)
    both.heartbeat(LEAVE)
    assert listed(both.groups) == [("g", "PreparingRebalance", "classic")]
    both.groups.runtime.advance(10_000)
    assert listed(both.groups) == [("g", "Empty", "classic")]


def test_commits_and_fetches_are_checked_by_the_type_that_has_the_group() -> None:
    """A commit with the partitions that exist: a member may lag behind where its assignment did not change."""
    both = Both()
    both.heartbeat(JOIN)
    assert commit(both.groups, partition=3, member_id="m", generation_id_or_member_epoch=4) is ErrorCode.NONE
    commit(both.groups, topic="nowhere")
    assert [(c.generation, c.partitions) for c in both.modern.commits] == [(4, [("t", 3)])]
    for epoch, code in ((1, 0), (3, ErrorCode.STALE_MEMBER_EPOCH)):
        asked = [OffsetFetchRequestGroup(group_id="g", member_id="m", member_epoch=epoch, topics=None)]
        assert both.groups.ask(OffsetFetchRequest(groups=asked), 9).groups[0].error_code == code


def test_a_type_brings_handlers_for_requests_of_several_groups() -> None:
    """Each is asked in its own shard."""
    both = Both()
    both.heartbeat(JOIN)
    response = both.groups.ask(ConsumerGroupDescribeRequest(group_ids=["g", "nobody"]))
    assert [(group.group_id, group.group_epoch) for group in response.groups] == [("g", 1), ("nobody", -1)]


def test_the_shared_apis_know_what_a_type_does_not_show() -> None:
    """DescribeGroups of a group that is no classic one: not found, though it has offsets."""
    both = Both()
    both.heartbeat(JOIN)
    commit(both.groups)
    (described,) = both.groups.ask(DescribeGroupsRequest(groups=["g"])).groups
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    (deleted,) = both.groups.ask(DeleteGroupsRequest(groups_names=["g"])).results
    assert deleted.error_code == ErrorCode.NON_EMPTY_GROUP
