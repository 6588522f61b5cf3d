"""What every classic member says: requests that any version can carry, and subscriptions that a leader reads back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blumfeld.client.classic_group import (
    CONSUMER_VERSION,
    COOPERATIVE,
    NO_GENERATION,
    NO_MEMBER_ID,
    RANGE,
    Membership,
    Next,
    Subscription,
    assignment_bytes,
    partitions_of,
    subscription_bytes,
)
from blumfeld.client.fetch import Place
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.leave_group import LeaveGroupRequest
from blumfeld.wire.schema import Message

places = st.sets(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 9)))


def member(**changes: object) -> Membership:
    made = Membership(
        group_id="g",
        protocol="range",
        session_timeout_ms=1,
        rebalance_timeout_ms=2,
        member_id="m",
        generation=7,
    )
    for name, value in changes.items():
        setattr(made, name, value)
    return made


@given(places, st.integers(0, CONSUMER_VERSION))
def test_an_assignment_is_read_back_in_any_version(partitions: set[tuple[str, int]], version: int) -> None:
    assert partitions_of(assignment_bytes(partitions, version=version)) == sorted(partitions)


def test_no_bytes_are_no_partitions() -> None:
    assert partitions_of(b"") == []


@given(places, st.integers(-1, 9))
def test_a_leader_reads_a_subscription(owned: set[tuple[str, int]], generation: int) -> None:
    read = Subscription.read(subscription_bytes(["a", "b"], owned, generation, "rack"))
    assert read == Subscription(("a", "b"), frozenset(owned), generation)
    oldest = Subscription.read(subscription_bytes(["a"], version=0))
    assert oldest == Subscription(("a",), frozenset(), NO_GENERATION)


def test_a_subscription_of_the_future_is_read_as_the_newest_known() -> None:
    data = (CONSUMER_VERSION + 1).to_bytes(2, "big") + subscription_bytes(["a"])[2:]
    assert Subscription.read(data).topics == ("a",)


@pytest.mark.parametrize("version", range(10))
def test_requests_have_a_form_in_every_version(version: int) -> None:
    """Fields that a version lacks may be left out, unless the member is static."""
    who = member()
    requests: list[Message] = [who.join(["a"]), who.sync({"m": [("a", 0)]}), who.heartbeat()]
    for request in requests:
        if version in type(request).meta.valid:
            again = decode(type(request), encode(request, version), version)
            assert getattr(again, "member_id", "") == "m"
    if 3 <= version <= 5:  # versions before take one member, without a reason
        leaves = decode(LeaveGroupRequest, encode(who.leave("done"), version), version)
        assert leaves.members[0].member_id == "m"


def test_requests_say_what_the_member_is() -> None:
    who = member(instance_id="i")
    joins, syncs, beats = who.join(["a"]), who.sync({"x": [("a", 1)]}), who.heartbeat()
    assert (joins.group_instance_id, joins.member_id, joins.protocols[0].name) == ("i", "m", "range")
    assert (joins.session_timeout_ms, joins.rebalance_timeout_ms) == (1, 2)
    assert (syncs.generation_id, syncs.protocol_name, syncs.assignments[0].member_id) == (7, "range", "x")
    assert who.sync({}, "roundrobin").protocol_name == "roundrobin"
    assert (beats.generation_id, beats.group_instance_id) == (7, "i")
    assert (who.leave("done").members[0].member_id, who.leave("done").members[0].reason) == ("m", "done")


@pytest.mark.parametrize(
    ("code", "after", "member_id", "generation"),
    [
        (ErrorCode.NONE, Next.GO_ON, "m", 7),
        (ErrorCode.REBALANCE_IN_PROGRESS, Next.JOIN, "m", 7),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Next.RETRY, "m", 7),
        (ErrorCode.ILLEGAL_GENERATION, Next.START_ANEW, "m", NO_GENERATION),
        (ErrorCode.UNKNOWN_MEMBER_ID, Next.START_ANEW, NO_MEMBER_ID, NO_GENERATION),
        (ErrorCode.FENCED_INSTANCE_ID, Next.FAIL, "m", 7),
    ],
)
def test_an_error_says_what_a_member_does_next(
    code: int, after: Next, member_id: str, generation: int
) -> None:
    who = member()
    assert who.heard(code) is after
    assert (who.member_id, who.generation) == (member_id, generation)


@pytest.mark.parametrize(("protocol", "kept"), [(RANGE, frozenset()), (COOPERATIVE, {("a", 0)})])
def test_a_cooperative_member_alone_keeps_what_it_owns(protocol: str, kept: frozenset[Place]) -> None:
    (joins,) = member(protocol=protocol).join(["a"], {("a", 0)}).protocols
    assert Subscription.read(joins.metadata) == Subscription(("a",), frozenset(kept), 7)
