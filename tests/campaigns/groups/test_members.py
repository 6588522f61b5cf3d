"""Model members do as real clients in cases that the simulation would not miss: without the rest no group settles."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from blumfeld.client.classic_group import COOPERATIVE, assignment_bytes, subscription_bytes
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from blumfeld.wire.messages.heartbeat import HeartbeatResponse
from blumfeld.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from blumfeld.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from blumfeld.wire.messages.sync_group import SyncGroupResponse
from campaigns.groups.classic_member import ClassicMember
from campaigns.groups.consumer_member import ConsumerMember
from campaigns.groups.member import Effect, Failed, MemberSettings, Own, Send, Topic

T = b"t" * 16
VIEW = {"t": Topic(T, 4)}
SETTINGS = MemberSettings(group_id="g", client_id="c", topics=("t",), commit_interval_ms=0)


def sent(effects: list[Effect]) -> list[Any]:
    """The requests among them."""
    return [effect.request for effect in effects if isinstance(effect, Send)]


def owned(effects: list[Effect]) -> list[set[int]]:
    """The partitions of each ``Own`` among them."""
    return [{index for _, index in effect.partitions} for effect in effects if isinstance(effect, Own)]


def token(effects: list[Effect]) -> int:
    """The token of the last request among them."""
    return [effect.token for effect in effects if isinstance(effect, Send)][-1]


def told(epoch: int, *partitions: int, error: int = 0) -> ConsumerGroupHeartbeatResponse:
    """A heartbeat's answer with these partitions assigned."""
    topics = [TopicPartitions(topic_id=T, partitions=list(partitions))]
    return ConsumerGroupHeartbeatResponse(
        error_code=error,
        member_epoch=epoch,
        heartbeat_interval_ms=5_000,
        assignment=Assignment(topic_partitions=topics),
    )


def joined(settings: MemberSettings = SETTINGS) -> tuple[ConsumerMember, list[Effect]]:
    """A member that has 0 and 1 in epoch 3, and what came of that."""
    member = ConsumerMember(settings, VIEW, "m")
    began = member.start(0)
    return member, member.answered(token(began), told(3, 0, 1), 10)


def test_a_consumer_acknowledges_the_end_of_what_it_never_heard_of() -> None:
    """A topic came and went between two refreshes of its metadata. The broker waits to hear that it doesn't have it."""
    member, effects = joined()
    member.answered(token(effects), told(3, 0, 1), 20)
    unheard = TopicPartitions(topic_id=b"u" * 16, partitions=[0])
    answer = told(4, 0, 1)
    assert answer.assignment is not None
    answer.assignment.topic_partitions.append(unheard)
    effects = member.answered(token(member.woken(10_000)), answer, 10_010)
    assert not owned(effects)
    effects = member.answered(token(effects), told(4, 0, 1), 10_020)
    (acknowledged,) = sent(effects)
    assert acknowledged.topic_partitions == [TopicPartitions(topic_id=T, partitions=[0, 1])]
    assert not sent(member.answered(token(effects), told(4, 0, 1), 10_030)), "nothing is new"


def test_a_member_may_be_fenced_until_the_broker_has_heard_what_it_gave_up() -> None:
    """An answer to a request that was under way meanwhile doesn't say that it has."""
    settings = replace(SETTINGS, revoke_ms=20_000, rebalance_timeout_ms=15_000)
    member, effects = joined(settings)
    member.answered(token(effects), told(3, 0, 1), 20)
    member.answered(token(member.woken(10_000)), told(4, 0), 10_010)
    last_ms = member.lease_ms
    assert last_ms < 10_010 + 15_000
    under_way = token(member.woken(15_010))
    assert owned(member.woken(30_010)) == [{0}]
    effects = member.answered(under_way, told(4, 0), 30_020)
    assert member.lease_ms == last_ms
    effects = effects if sent(effects) else member.woken(35_020)
    assert sent(effects)[0].topic_partitions == [TopicPartitions(topic_id=T, partitions=[0])]
    member.answered(token(effects), told(4, 0), 35_030)
    assert member.lease_ms > 35_030


def test_an_error_that_nobody_gets_over_ends_a_member() -> None:
    """The application is told."""
    member, effects = joined()
    effects = member.answered(token(effects), told(0, error=ErrorCode.GROUP_MAX_SIZE_REACHED), 20)
    assert Failed("ConsumerGroupHeartbeat", ErrorCode.GROUP_MAX_SIZE_REACHED) in effects
    assert not member.in_group
    assert not member.owned


def classic(protocol: str = "range") -> tuple[ClassicMember, list[Effect]]:
    """A member that leads generation 1 alone, and its sync."""
    member = ClassicMember(replace(SETTINGS, assignor=protocol), VIEW)
    required = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="m")
    effects = member.answered(token(member.start(0)), required, 1)
    assert sent(effects)[0].member_id == "m"
    metadata = subscription_bytes(["t"], (), -1, None)
    answer = JoinGroupResponse(
        generation_id=1,
        protocol_name=protocol,
        leader="m",
        member_id="m",
        members=[JoinGroupResponseMember(member_id="m", metadata=metadata)],
    )
    return member, member.answered(token(effects), answer, 2)


def stable(protocol: str = "range") -> tuple[ClassicMember, list[Effect]]:
    """It has all four partitions, and its next heartbeat is sent."""
    member, effects = classic(protocol)
    (sync,) = sent(effects)
    mine = sync.assignments[0].assignment
    effects = member.answered(token(effects), SyncGroupResponse(assignment=mine), 3)
    assert owned(effects) == [{0, 1, 2, 3}]
    return member, member.woken(2 + SETTINGS.heartbeat_interval_ms)


REBALANCE = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)


@pytest.mark.parametrize(("generation", "kept"), [(2, True), (3, False)])
@pytest.mark.parametrize("leader", ["n", ""])
def test_a_static_member_that_missed_a_generation_drops_what_it_had(
    leader: str, generation: int, kept: bool
) -> None:
    """Others may have it by now, also if the group has become one whose broker assigns since. What it would commit when
    it gives that up would take committed offsets back.
    """
    member, effects = stable(COOPERATIVE)
    member.settings = replace(member.settings, instance_id="i", commit_interval_ms=1_000)
    member.positions = dict.fromkeys(member.owned, 7)
    effects = member.answered(token(effects), REBALANCE, 4_000)
    answer = JoinGroupResponse(
        generation_id=generation, protocol_name=COOPERATIVE, leader=leader, member_id="m"
    )
    effects = member.answered(token(effects), answer, 5_000)
    assert owned(effects) == ([] if kept else [set()])
    given = SyncGroupResponse(assignment=assignment_bytes([("t", 3)]))
    effects = member.answered(token(effects), given, 5_001)
    assert any(isinstance(request, OffsetCommitRequest) for request in sent(effects)) == kept


def test_a_commit_tells_a_classic_member_that_it_is_out() -> None:
    """As Java: no heartbeat has told it yet."""
    member, _ = stable()
    member.settings = replace(member.settings, commit_interval_ms=1_000)
    member.positions = dict.fromkeys(member.owned, 7)
    member._commit(member.positions)
    effects = member.woken(4_000)
    partition = OffsetCommitResponsePartition(partition_index=0, error_code=ErrorCode.ILLEGAL_GENERATION)
    refused = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[partition])])
    effects = member.answered(token(effects), refused, 4_001)
    assert owned(effects) == [set()]
    assert sent(member.woken(4_101))[0].member_id == "m"
