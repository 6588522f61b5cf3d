"""Virtual members on answers made by hand: what they send, when they own, when they beat again."""

from __future__ import annotations

import random
from typing import TypeVar

import pytest

from blumfeld.wire.codec import decode, encode
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.headers import request_header, response_header, response_is_flexible
from blumfeld.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from blumfeld.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from blumfeld.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from blumfeld.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from blumfeld.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from blumfeld.wire.schema import Message
from blumfeld_bench.drivers.contract import DriverError
from blumfeld_bench.rebalance.members.classic import ClassicMember
from blumfeld_bench.rebalance.members.consumer import ConsumerMember
from blumfeld_bench.rebalance.members.member import FAR_NS, RETRY_NS, Group
from blumfeld_bench.rebalance.members.ownership import Ownership

TOPIC_ID = bytes(range(16))
INTERVAL_NS = 1_000_000_000
VERSIONS: dict[type[Message], int] = {
    JoinGroupResponse: 9,
    SyncGroupResponse: 5,
    HeartbeatResponse: 4,
    ConsumerGroupHeartbeatResponse: 1,
}
R = TypeVar("R", bound=Message)


@pytest.fixture
def group() -> Group:
    return Group("g", "t", TOPIC_ID, 4, 6000, 60_000, 1000, random.Random(1), Ownership(4))


def reply(message: Message) -> bytes:
    version, key = VERSIONS[type(message)], type(message).meta.key
    assert key is not None
    return response_header(key, response_is_flexible(key, version)) + encode(message, version)


def sent(frame: bytes | None, expected: type[R]) -> R:
    assert frame is not None
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header = request_header(memoryview(frame)[4:])
    assert header.api_key == expected.meta.key
    return decode(expected, memoryview(frame)[4:], header.api_version, header.body_offset)


def joined(generation: int, member: str, leader: str, *members: tuple[str, bytes]) -> bytes:
    others = [JoinGroupResponseMember(member_id=name, metadata=data) for name, data in members]
    return reply(
        JoinGroupResponse(
            generation_id=generation, member_id=member, leader=leader, protocol_name="range", members=others
        )
    )


def synced(*partitions: int) -> bytes:
    mine = [ConsumerProtocolAssignmentTopicPartition(topic="t", partitions=list(partitions))]
    data = encode(ConsumerProtocolAssignment(assigned_partitions=mine), 3)
    return reply(SyncGroupResponse(assignment=b"\0\3" + data))


def in_group(group: Group, cooperative: bool, *partitions: int) -> ClassicMember:
    """A follower with these, at rest since time 0."""
    member = ClassicMember(group, 1, cooperative)
    member.begin(0)
    member.answered(reply(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="a")), 0)
    member.answered(joined(1, "a", "b"), 0)
    member.answered(synced(*partitions), 0)
    return member


def test_a_classic_member_asks_for_its_id_joins_syncs_and_beats(group: Group) -> None:
    member = ClassicMember(group, 1, cooperative=False)
    assert sent(member.begin(0), JoinGroupRequest).member_id == ""
    again = member.answered(
        reply(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="a")), 5
    )
    assert sent(again, JoinGroupRequest).member_id == "a"
    assert sent(member.answered(joined(7, "a", "b"), 6), SyncGroupRequest).generation_id == 7
    assert not member.idle
    assert member.answered(synced(0, 1), 10) is None
    assert (member.idle, member.epoch, group.ownership.owned(1)) == (True, 7, {0, 1})
    assert 10 < member.wake_ns <= 10 + INTERVAL_NS, "its own moment of the interval"
    assert sent(member.due(500), HeartbeatRequest).generation_id == 7
    assert member.wake_ns == FAR_NS, "one request at a time"
    assert member.answered(reply(HeartbeatResponse()), 900) is None
    assert member.wake_ns == 500 + INTERVAL_NS


def test_an_eager_member_gives_up_everything_before_it_rejoins(group: Group) -> None:
    member = in_group(group, False, 0, 1)
    member.due(100)
    again = member.answered(reply(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)), 200)
    assert sent(again, JoinGroupRequest).protocols[0].name == "range"
    assert (group.ownership.owned(1), group.ownership.changed_ns, member.idle) == (set(), 200, False)


def test_a_cooperative_member_keeps_what_it_has_and_says_so(group: Group) -> None:
    member = in_group(group, True, 0, 1)
    member.due(100)
    again = member.answered(reply(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)), 200)
    protocol = sent(again, JoinGroupRequest).protocols[0]
    subscription = decode(ConsumerProtocolSubscription, protocol.metadata, 3, 2)
    assert (protocol.name, subscription.owned_partitions[0].partitions) == ("cooperative-sticky", [0, 1])
    assert group.ownership.owned(1) == {0, 1}


def test_a_cooperative_member_that_gave_something_up_rejoins_at_once(group: Group) -> None:
    member = in_group(group, True, 0, 1)
    member.due(100)
    member.answered(reply(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)), 200)
    member.answered(joined(2, "a", "b"), 300)
    sent(member.answered(synced(0), 400), JoinGroupRequest)
    assert (group.ownership.owned(1), member.idle) == ({0}, False)


def test_a_leader_deals_when_the_others_have_been_heard(group: Group) -> None:
    """It says that it is slow, and is asked again when nobody else has anything to do."""
    member = ClassicMember(group, 1, cooperative=False)
    member.begin(0)
    assert member.answered(joined(1, "a", "a", ("a", b""), ("b", b"")), 0) is None
    assert (member.slow, member.is_leader) == (True, True)
    assignments = sent(member.due(5), SyncGroupRequest).assignments
    partitions_by_member = {
        assignment.member_id: decode(ConsumerProtocolAssignment, assignment.assignment, 3, 2)
        .assigned_partitions[0]
        .partitions
        for assignment in assignments
    }
    assert partitions_by_member == {"a": [0, 1], "b": [2, 3]}
    assert not member.slow


def test_a_forgotten_classic_member_begins_again_with_nothing_and_it_is_a_fault(group: Group) -> None:
    member = in_group(group, True, 0)
    member.due(100)
    again = member.answered(reply(HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)), 200)
    assert sent(again, JoinGroupRequest).member_id == ""
    assert group.ownership.owned(1) == set()
    assert group.faults == {"UNKNOWN_MEMBER_ID": 1}


def beat(epoch: int, *partitions: int, interval_ms: int = 1000, assigned: bool = True) -> bytes:
    topics = [TopicPartitions(topic_id=TOPIC_ID, partitions=list(partitions))] if partitions else []
    return reply(
        ConsumerGroupHeartbeatResponse(
            member_id="m",
            member_epoch=epoch,
            heartbeat_interval_ms=interval_ms,
            assignment=Assignment(topic_partitions=topics) if assigned else None,
        )
    )


def test_a_consumer_member_takes_its_assignment_and_says_so_at_once(group: Group) -> None:
    member = ConsumerMember(group, 1)
    first = sent(member.begin(0), ConsumerGroupHeartbeatRequest)
    assert (first.member_epoch, first.topic_partitions, first.subscribed_topic_names) == (0, [], ["t"])
    owned = sent(member.answered(beat(3, 0, 1), 10), ConsumerGroupHeartbeatRequest)
    assert owned.topic_partitions is not None
    assert (owned.member_epoch, owned.topic_partitions[0].partitions) == (3, [0, 1])
    assert group.ownership.owned(1) == {0, 1}
    assert member.answered(beat(3, assigned=False), 20) is None
    assert member.wake_ns == 10 + INTERVAL_NS
    quiet = sent(member.due(1000), ConsumerGroupHeartbeatRequest)
    assert (quiet.topic_partitions, quiet.subscribed_topic_names) == (None, None)


def test_a_consumer_member_beats_at_the_interval_that_it_is_told(group: Group) -> None:
    member = ConsumerMember(group, 1)
    member.begin(0)
    member.answered(beat(1, interval_ms=250), 3)
    assert member.wake_ns == 250_000_000
    member.due(250_000_000)
    member.answered(beat(1, interval_ms=400, assigned=False), 250_000_100)
    assert member.wake_ns == 650_000_000


def test_a_consumer_member_gives_up_what_is_missing_and_keeps_the_rest(group: Group) -> None:
    member = ConsumerMember(group, 1)
    member.begin(0)
    member.answered(beat(1, 0, 1), 1)
    group.ownership.begin()
    again = sent(member.answered(beat(1, 1), 50), ConsumerGroupHeartbeatRequest)
    assert again.topic_partitions is not None
    assert again.topic_partitions[0].partitions == [1]
    assert [(change.gained, change.partitions) for change in group.ownership.changes] == [(False, (0,))]


def test_a_fenced_consumer_member_begins_again_with_nothing(group: Group) -> None:
    member = ConsumerMember(group, 1)
    member.begin(0)
    member.answered(beat(1, 0, 1), 1)
    fenced = reply(ConsumerGroupHeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH))
    assert sent(member.answered(fenced, 2), ConsumerGroupHeartbeatRequest).member_epoch == 0
    assert (group.ownership.owned(1), dict(group.faults)) == (set(), {"FENCED_MEMBER_EPOCH": 1})


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR])
def test_a_member_has_patience_with_a_coordinator_that_begins(group: Group, code: ErrorCode) -> None:
    consumer, classic = ConsumerMember(group, 1), ClassicMember(group, 2, cooperative=False)
    consumer.begin(0)
    classic.begin(0)
    assert consumer.answered(reply(ConsumerGroupHeartbeatResponse(error_code=code)), 7) is None
    assert classic.answered(reply(JoinGroupResponse(error_code=code)), 7) is None
    assert consumer.wake_ns == classic.wake_ns == 7 + RETRY_NS
    assert sent(consumer.due(9), ConsumerGroupHeartbeatRequest).member_epoch == 0
    sent(classic.due(9), JoinGroupRequest)


def test_a_refusal_that_no_patience_mends_ends_the_measurement(group: Group) -> None:
    member = ConsumerMember(group, 1)
    member.begin(0)
    refused = ConsumerGroupHeartbeatResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED)
    with pytest.raises(DriverError, match="GROUP_MAX_SIZE_REACHED"):
        member.answered(reply(refused), 1)
