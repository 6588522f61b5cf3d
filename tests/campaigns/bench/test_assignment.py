"""The virtual members of the assignment bench, and its figures. The bench itself is run by hand."""

from __future__ import annotations

import random

import pytest

from blumfeld.wire.codec import decode, encode
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.headers import request_header, response_header
from blumfeld.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from blumfeld_bench.drivers.contract import DriverError
from blumfeld_bench.rebalance.members.member import FAR_NS, Group
from blumfeld_bench.rebalance.members.ownership import Ownership
from campaigns.bench.assignment import Beating, percentile

KEY, VERSION = 68, 1
TOPIC_ID = bytes(range(16))
MS = 1_000_000


def member(every_ms: int = 0) -> Beating:
    group = Group(
        group_id="g",
        topic="",
        topic_id=b"",
        partitions=0,
        session_timeout_ms=45_000,
        rebalance_timeout_ms=45_000,
        heartbeat_interval_ms=0,
        draw=random.Random(1),
        ownership=Ownership(0),
    )
    return Beating(group, 0, ["t"], every_ms * MS)


def said(frame: bytes | None) -> ConsumerGroupHeartbeatRequest:
    """What a frame asks."""
    assert frame is not None
    view = memoryview(frame)[4:]
    return decode(ConsumerGroupHeartbeatRequest, view, VERSION, request_header(view).body_offset)


def told(**fields: object) -> bytes:
    message = ConsumerGroupHeartbeatResponse(heartbeat_interval_ms=5000, **fields)  # type: ignore[arg-type]
    return response_header(KEY, flexible=True) + encode(message, VERSION)


def given(*partitions: int) -> Assignment:
    return Assignment(topic_partitions=[TopicPartitions(topic_id=TOPIC_ID, partitions=list(partitions))])


def test_it_joins_says_what_it_owns_and_beats_at_the_interval() -> None:
    one = member()
    assert said(one.begin(0)).member_epoch == 0
    acknowledged = said(one.answered(told(member_epoch=1, assignment=given(0, 1)), 3 * MS))
    assert acknowledged.topic_partitions == [TopicPartitions(topic_id=TOPIC_ID, partitions=[0, 1])]
    assert one.answered(told(member_epoch=1), 5 * MS) is None
    assert (one.count, one.times_ns) == (2, [3 * MS, 2 * MS])
    assert one.wake_ns == 3 * MS + 5000 * MS
    beat = said(one.due(one.wake_ns))
    assert (beat.member_epoch, beat.topic_partitions, one.wake_ns) == (1, None, FAR_NS)


def test_a_late_heartbeat_counts_from_when_it_was_due() -> None:
    one = member(every_ms=10)
    one.begin(0)
    one.answered(told(member_epoch=1), 1 * MS)
    due_ns = one.wake_ns
    one.due(due_ns + 40 * MS)
    one.answered(told(member_epoch=1), due_ns + 41 * MS)
    assert one.times_ns[-1] == 41 * MS
    assert one.wake_ns == due_ns + 10 * MS


def test_a_refusal_ends_the_bench() -> None:
    one = member()
    one.begin(0)
    with pytest.raises(DriverError, match="UNKNOWN_SERVER_ERROR no racks"):
        one.answered(told(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, error_message="no racks"), 1)


def test_percentiles_are_of_what_was_measured() -> None:
    times = list(range(1, 101))
    assert [percentile(times, share) for share in (0.5, 0.99, 1.0)] == [51, 100, 100]
    assert percentile([], 0.5) == 0
