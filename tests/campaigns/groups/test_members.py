"""Model members do what real clients do: by their requests, what they own, and when they want to be woken."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from blumfeld.client.classic_group import Subscription, assignment_bytes, partitions_of, subscription_bytes
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
from campaigns.groups.classic_assignment import assign
from campaigns.groups.members import (
    COOPERATIVE,
    ClassicMember,
    ConsumerMember,
    Effect,
    Failed,
    MemberSettings,
    Own,
    Send,
    Topic,
    WakeAt,
)

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
    """Of the last request among them."""
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


def test_a_consumer_joins_with_everything_and_acknowledges_at_once() -> None:
    """Epoch 0, timeouts and subscription, no partitions; then what it owns, and nothing that is known already."""
    member = ConsumerMember(SETTINGS, VIEW, "m")
    (first,) = sent(member.start(0))
    assert (first.member_epoch, first.topic_partitions, first.subscribed_topic_names) == (0, [], ["t"])
    _, effects = joined()
    assert owned(effects) == [{0, 1}]
    (second,) = sent(effects)
    assert second.member_epoch == 3
    assert second.topic_partitions[0].partitions == [0, 1]
    assert second.subscribed_topic_names is None


def test_a_consumer_beats_at_the_interval_that_it_was_told() -> None:
    """And says nothing of partitions that haven't changed."""
    member, effects = joined()
    effects = member.answered(token(effects), replace(told(3), assignment=None), 20)
    assert effects == [WakeAt(5_020)]
    (request,) = sent(member.woken(5_020))
    assert request.topic_partitions is None


def test_a_consumer_gives_up_first_and_takes_afterwards() -> None:
    """It says so when both are done, and beats on meanwhile."""
    member, effects = joined(replace(SETTINGS, revoke_ms=7_000))
    effects = member.answered(token(effects), told(3, 1, 2), 20)
    assert not owned(effects)
    assert sent(member.woken(5_020))[0].topic_partitions is None
    effects = member.woken(7_020)
    assert owned(effects) == [{1, 2}]


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


def test_a_fenced_consumer_drops_all_and_joins_anew() -> None:
    """Under the same member id."""
    for error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
        member, effects = joined()
        effects = member.answered(token(effects), told(0, error=error), 20)
        assert owned(effects) == [set()]
        (request,) = sent(effects)
        assert (request.member_id, request.member_epoch, request.topic_partitions) == ("m", 0, [])


def test_a_lost_answer_makes_a_consumer_say_everything() -> None:
    """For it may have been told something."""
    member, effects = joined()
    lost = token(effects)
    effects = member.woken(10 + SETTINGS.request_timeout_ms)
    effects = member.woken(10 + SETTINGS.request_timeout_ms + SETTINGS.retry_backoff_ms)
    (request,) = sent(effects)
    assert request.member_epoch == 3
    assert request.subscribed_topic_names == ["t"]
    assert request.topic_partitions[0].partitions == [0, 1]
    assert not sent(member.answered(lost, told(9), 31_000)), "an answer that comes too late is none"
    assert member.epoch == 3


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_a_consumer_leaves_for_good_or_for_a_while(instance: str | None, epoch: int) -> None:
    """It owns nothing any more when it says so."""
    member, _ = joined(replace(SETTINGS, instance_id=instance))
    member.close(100)
    effects = member.woken(100)
    assert owned(effects) == [set()]
    assert sent(effects)[0].member_epoch == epoch
    member.answered(token(effects), None, 200)
    assert not member.in_group


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


def test_an_eager_member_gives_everything_up_before_it_joins_again() -> None:
    """It says that it owns nothing."""
    member, effects = stable()
    member.answered(token(effects), REBALANCE, 4_000)
    effects = member.woken(4_000)
    assert owned(effects) == [set()]
    assert Subscription.read(sent(effects)[0].protocols[0].metadata).owned == frozenset()


def test_a_cooperative_member_keeps_what_it_has_and_says_so() -> None:
    """What it loses it gives up after the sync, and then joins once more."""
    member, effects = stable(COOPERATIVE)
    effects = member.answered(token(effects), REBALANCE, 4_000)
    assert not owned(effects)
    assert len(Subscription.read(sent(effects)[0].protocols[0].metadata).owned) == 4
    again = JoinGroupResponse(generation_id=2, protocol_name=COOPERATIVE, leader="n", member_id="m")
    effects = member.answered(token(effects), again, 4_001)
    given = assignment_bytes([("t", 0), ("t", 1)])
    member.answered(token(effects), SyncGroupResponse(assignment=given), 4_002)
    effects = member.woken(4_002)
    assert owned(effects) == [{0, 1}]
    assert type(sent(effects)[0]).__name__ == "JoinGroupRequest"


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


def test_a_classic_member_that_is_unknown_drops_all_and_is_nobody() -> None:
    """It asks for a new member id."""
    member, effects = stable(COOPERATIVE)
    gone = HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    effects = member.answered(token(effects), gone, 4_000)
    assert owned(effects) == [set()]
    (request,) = sent(member.woken(4_000 + SETTINGS.retry_backoff_ms))
    assert request.member_id == ""


def test_a_leader_asks_for_a_rebalance_when_a_topic_grows() -> None:
    """Nobody else would."""
    member, effects = stable()
    member.answered(token(effects), HeartbeatResponse(), 4_000)
    assert not sent(member.metadata(VIEW, 4_001))
    member.metadata({"t": Topic(T, 5)}, 4_002)
    assert type(sent(member.woken(4_002))[0]).__name__ == "JoinGroupRequest"


def test_what_a_leader_deals_is_even_and_sticks() -> None:
    """Cooperative: what another still owns is withheld from its new owner."""
    members = {
        "a": Subscription(("t",), frozenset(("t", n) for n in range(4)), 1),
        "b": Subscription(("t",), frozenset(), -1),
    }
    dealt = assign(members, {"t": 4}, cooperative=False)
    assert {len(given) for given in dealt.values()} == {2}
    assert set(dealt["a"]) < members["a"].owned
    assert assign(members, {"t": 4}, cooperative=True)["b"] == []
    assert partitions_of(assignment_bytes(dealt["a"])) == sorted(dealt["a"])
