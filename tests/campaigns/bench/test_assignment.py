"""The virtual members of the assignment bench: what they record. The bench itself is run by hand."""

from __future__ import annotations

import random

from blumfeld.wire.codec import encode
from blumfeld.wire.headers import response_header
from blumfeld.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from blumfeld_bench.rebalance.members.member import Group
from blumfeld_bench.rebalance.members.ownership import Ownership
from campaigns.bench.assignment import TimedMember

MS = 1_000_000


def answered(*partitions: int) -> bytes:
    topics = [TopicPartitions(topic_id=bytes(range(16)), partitions=list(partitions))]
    message = ConsumerGroupHeartbeatResponse(
        member_epoch=1,
        heartbeat_interval_ms=5000,
        assignment=Assignment(topic_partitions=topics) if partitions else None,
    )
    return response_header(68, flexible=True) + encode(message, 1)


def member(every_ms: int) -> TimedMember:
    group = Group("g", "t", bytes(range(16)), 2, 6000, 60_000, 0, random.Random(1), Ownership(2))
    return TimedMember(group, 0, every_ms * MS)


def test_a_late_heartbeat_counts_from_when_it_was_due_and_delays_no_other() -> None:
    bystander = member(every_ms=10)
    bystander.begin(0)
    assert bystander.answered(answered(0, 1), 3 * MS) is not None, "what it owns, at once"
    assert bystander.answered(answered(), 5 * MS) is None
    due_ns = bystander.wake_ns
    assert due_ns == 3 * MS + 10 * MS
    bystander.due(due_ns + 40 * MS)
    bystander.answered(answered(), due_ns + 41 * MS)
    assert bystander.times_ns == [3 * MS, 2 * MS, 41 * MS]
    assert bystander.wake_ns == due_ns + 10 * MS


def test_members_that_joined_together_beat_at_moments_of_their_own() -> None:
    first_member = member(every_ms=0)
    first_member.begin(0)
    first_member.answered(answered(), 5 * MS)
    first_ns = first_member.wake_ns
    assert 5 * MS < first_ns < 5005 * MS
    first_member.due(first_ns)
    first_member.answered(answered(), first_ns + MS)
    assert first_member.wake_ns == first_ns + 5000 * MS
