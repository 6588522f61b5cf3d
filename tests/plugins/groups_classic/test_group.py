"""The pieces of groups_classic: the plug-in's face, the vote, and what it reads of a subscription."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest

from blumfeld.wire.api import ApiKey
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from blumfeld.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from blumfeld.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from blumfeld.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from blumfeld.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from blumfeld.wire.schema import Message
from blumfeld_groups_classic import ClassicGroupProtocol, Plugin
from blumfeld_groups_classic.group import Group, Member
from blumfeld_groups_classic.subscription import subscribed_topics


def test_it_is_found_by_its_entry_point() -> None:
    """As any other plug-in."""
    (entry_point,) = entry_points(group="blumfeld.plugins", name="groups_classic")
    assert entry_point.load() is Plugin


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        (JoinGroupRequest(member_id="m"), JoinGroupResponse),
        (SyncGroupRequest(), SyncGroupResponse),
        (HeartbeatRequest(), HeartbeatResponse),
        (LeaveGroupRequest(), LeaveGroupResponse),
    ],
)
def test_every_api_has_its_error(request_: Message, response: type[Message]) -> None:
    """In every version that is served; a join says whose error it is."""
    protocol = ClassicGroupProtocol()
    assert sorted(protocol.apis) == [
        ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP,
    ]
    key = request_.meta.key
    assert key is not None
    low, high = protocol.apis[key]
    for version in range(low, high + 1):
        error = protocol.error_response(request_, 16, None)
        read = decode(response, encode(error, version), version)
        assert read.error_code == 16  # type: ignore[attr-defined]
        assert getattr(read, "member_id", "m") == "m"


def group_of(*preferences: str) -> Group:
    """Members with their protocols in order of preference: one letter each."""
    group = Group("g")
    for n, names in enumerate(preferences):
        protocols = tuple((name, b"") for name in names)
        group.add(Member(f"m{n}", None, "", "", 10_000, 10_000, protocols))
    return group


@pytest.mark.parametrize(
    ("preferences", "chosen"),
    [
        pytest.param(("ab",), "a", id="one member, its first"),
        pytest.param(("ab", "ba", "ba"), "b", id="most votes"),
        pytest.param(("abc", "cba"), "a", id="a draw: the first member's"),
        pytest.param(("abc", "bc", "cb"), "b", id="only what all support, by the first's order"),
        pytest.param(
            ("ab", "xb", "xb"), "b", id="a majority for what one doesn't support counts for nothing"
        ),
        pytest.param((), None, id="nobody"),
    ],
)
def test_each_member_votes_for_its_first_that_all_support(
    preferences: tuple[str, ...], chosen: str | None
) -> None:
    """The same members give the same choice, whatever the hash seed."""
    assert group_of(*preferences).vote() == chosen


@pytest.mark.parametrize("version", range(4))
def test_a_subscription_of_any_version_is_read(version: int) -> None:
    """The version stands before it."""
    body = encode(ConsumerProtocolSubscription(topics=["t", "ü"]), version)
    assert subscribed_topics(version.to_bytes(2) + body) == ("t", "ü")


def test_a_newer_subscription_is_read_as_far_as_we_know_it() -> None:
    """Newer versions add fields at the end."""
    body = encode(ConsumerProtocolSubscription(topics=["t"]), 3)
    assert subscribed_topics(b"\x00\x09" + body + b"something new") == ("t",)


@pytest.mark.parametrize(
    "metadata", [b"", b"\x00", b"\xff\xff", b"\x00\x00", b"\x00\x00\x00\x00\x00\x09", b"connect"]
)
def test_what_is_no_subscription_is_unknown_not_empty(metadata: bytes) -> None:
    """Nobody may conclude that its topics are not read."""
    assert subscribed_topics(metadata) is None
