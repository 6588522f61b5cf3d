"""Migration of groups where a script doesn't reach: builds with one of the two plug-ins, and appends that fail."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from blumfeld.coordinator.groups.records import decode_record
from blumfeld.spi.groups import GroupProtocol
from blumfeld.wire.api import ApiKey
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from blumfeld.wire.messages.consumer_protocol import ConsumerProtocolAssignmentTopicPartition
from blumfeld.wire.messages.heartbeat import HeartbeatRequest
from blumfeld.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from blumfeld.wire.messages.list_groups import ListGroupsRequest
from blumfeld_groups_classic import ClassicGroupProtocol
from blumfeld_groups_kip848.conversion import member_bytes
from blumfeld_groups_kip848.protocol import ConsumerGroupProtocol
from tests.coordinator.fakes import FakeImage, FakeLog, topic_id
from tests.coordinator.groups_fixture import Config, Groups
from tests.plugins.groups_both.migration_trace import (
    ALL_TYPES,
    CONFIG,
    MigrationScript,
    assignment,
    read,
    subscription,
)

GROUP = "g"


def build(log: FakeLog, *protocols: GroupProtocol, config: Config | None = None) -> Groups:
    """A build with these types on this log."""
    return Groups({**CONFIG, **(config or {})}, log=log, protocols=protocols)


def both() -> Sequence[GroupProtocol]:
    return [ClassicGroupProtocol(), ConsumerGroupProtocol()]


def join_request(member_id: str = "", instance: str | None = "one") -> JoinGroupRequest:
    """A join of a static member, which is answered at once."""
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(["t"], ""))],
    )


def beat(groups: Groups, member_id: str, epoch: int = 0) -> ErrorCode:
    """What a member of the new protocol is answered."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    return ErrorCode(groups.ask(request).error_code)


def classic_beat(groups: Groups, member_id: str, generation: int) -> ErrorCode:
    """What a classic member is answered."""
    request = HeartbeatRequest(group_id=GROUP, member_id=member_id, generation_id=generation)
    return ErrorCode(groups.ask(request).error_code)


def listed(groups: Groups) -> list[tuple[str, str]]:
    return [(g.group_type, g.group_state) for g in groups.ask(ListGroupsRequest()).groups]


def tombstones(log: FakeLog) -> list[int]:
    """The types of all records that delete, in order."""
    decoded = [decode_record(ALL_TYPES, item) for item in log.items]
    return [record[0] for record in decoded if record is not None and record[2] is None]


def test_each_build_has_the_apis_of_its_own_types() -> None:
    """Classic requests to KIP-848 groups are only served where classic groups are."""
    classic = {ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP}
    modern = {ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE}
    apis = {
        "classic": build(FakeLog(), ClassicGroupProtocol()).handlers.keys(),
        "modern": build(FakeLog(), ConsumerGroupProtocol()).handlers.keys(),
        "both": build(FakeLog(), *both()).handlers.keys(),
    }
    assert {name: classic <= keys for name, keys in apis.items()} == {
        "classic": True,
        "modern": False,
        "both": True,
    }
    assert {name: modern <= keys for name, keys in apis.items()} == {
        "classic": False,
        "modern": True,
        "both": True,
    }
    assert not classic & apis["modern"]


def test_the_last_modern_member_leaves_a_build_without_classic_groups() -> None:
    """It stays a KIP-848 group with its classic members, who can't be heard of any more, and expires with them."""
    log = FakeLog()
    groups = build(log, *both())
    beat(groups, "m")
    groups.ask(join_request())
    alone = build(log, ConsumerGroupProtocol())
    assert beat(alone, "m", -1) is ErrorCode.NONE
    assert listed(alone) == [("consumer", "Assigning")]
    alone.runtime.advance(11_000)
    assert listed(alone) == [("consumer", "Empty")]


def test_a_group_that_a_build_could_not_read_gives_way_to_one_that_has_members() -> None:
    """A classic group that a build without the classic type knew nothing of; both are in the log then."""
    log = FakeLog()
    classic = build(log, ClassicGroupProtocol())
    member_id = classic.ask(join_request()).member_id
    classic.ask(join_request(member_id))
    classic.runtime.advance(70_000)  # it never syncs, and is out: the group is empty in the log
    assert listed(classic) == [("classic", "Empty")]
    modern = build(log, ConsumerGroupProtocol())
    assert listed(modern) == []
    assert beat(modern, "m") is ErrorCode.NONE
    groups = build(log, *both())
    assert listed(groups) == [("consumer", "Stable")]
    assert tombstones(log) == [2]
    assert beat(groups, "m", 2) is ErrorCode.NONE
    groups.reload()
    assert listed(groups) == [("consumer", "Stable")]
    assert tombstones(log) == [2], "it was told once"


def test_of_two_groups_with_members_the_classic_one_goes() -> None:
    """Its members learn that they are unknown, and come back as classic members of the other."""
    log = FakeLog()
    beat(build(log, ConsumerGroupProtocol()), "m")
    classic = build(log, ClassicGroupProtocol())
    joined = classic.ask(join_request())
    script = MigrationScript()
    script._groups = classic
    script.run("join b")
    script.run("join b")
    groups = build(log, *both())
    assert listed(groups) == [("consumer", "Stable")]
    assert classic_beat(groups, joined.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    again = groups.ask(join_request())
    assert (again.error_code, again.leader, again.generation_id) == (0, "", 3)


def test_an_empty_group_goes_when_a_classic_one_was_made_beside_it() -> None:
    """A build without the KIP-848 type could not know of it."""
    log = FakeLog()
    modern = build(log, ConsumerGroupProtocol())
    beat(modern, "m")
    beat(modern, "m", -1)
    classic = MigrationScript()
    classic._groups = build(log, ClassicGroupProtocol())
    for line in ("join a", "join a", "sync a assign=a:t0"):
        classic.run(line)
    groups = build(log, *both())
    assert listed(groups) == [("classic", "Stable")]
    assert tombstones(log)[-1] == 3
    assert classic_beat(groups, classic.clients["a"].member_id, 1) is ErrorCode.NONE


def test_a_heartbeat_that_fails_late_leaves_everyone_waiting() -> None:
    """There is no place for the new member: found out after the group was taken over, in a decision that then came to
    nothing.
    """
    script = MigrationScript()
    script.run("config group.consumer.max.size=2")
    for line in ("join a", "join a", "sync a assign=a:t0", "join b"):
        script.run(line)
    assert script.run("join b") == []
    assert script.run("hb m") == ["m hb 0 GROUP_MAX_SIZE_REACHED"]
    answers = script.run("join a")
    assert [answer.split(" generation")[0] for answer in answers] == [
        "b join NONE id=b",
        "a join NONE id=a",
    ]


@pytest.fixture(params=["hb m", "hb m epoch=-1"], ids=["upgrade", "downgrade"])
def migrating(request: pytest.FixtureRequest) -> tuple[MigrationScript, str, list[str]]:
    """A stable group, the command that migrates it, and its description."""
    script = MigrationScript()
    line: str = request.param
    for before in ("join a", "join a", "sync a assign=a:t0+t1+t2+t3", *(["hb m"] if "epoch" in line else [])):
        script.run(before)
    return script, line, script.run("describe")


def test_a_migration_that_can_not_be_written_did_not_happen(
    migrating: tuple[MigrationScript, str, list[str]],
) -> None:
    """Whoever waits is told to look for the coordinator again; a second later the group is what it was."""
    script, line, was = migrating
    script.run("join b")
    script.run("fail")
    assert "m hb" in script.run(line)[-1]
    assert script.run(line)[-1].endswith("NOT_COORDINATOR")
    script.run("wait 1100")
    assert script.run("describe")[0] == was[0]


def test_a_refused_migration_leaves_the_group_to_its_type(
    migrating: tuple[MigrationScript, str, list[str]],
) -> None:
    """Too few replicas are in sync: nobody loses a group, and the same request migrates it a moment later."""
    script, line, was = migrating
    script.run("starve")
    assert script.run(line)[-1].endswith("COORDINATOR_NOT_AVAILABLE")
    assert script.run("describe") == was
    migrated = script.run(line)
    assert not migrated[-1].endswith(("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE"))
    assert script.run("describe") != was


def test_an_assignment_leaves_out_topics_that_are_gone() -> None:
    """And says the rest in ascending order, in the version that is asked for."""
    image = FakeImage({"u": 1, "t": 4})
    assigned = {
        topic_id("u"): frozenset([0]),
        topic_id("t"): frozenset([2, 1]),
        topic_id("gone"): frozenset([0]),
    }
    data = member_bytes.assignment_bytes(assigned, 1, image)
    assert data == assignment("t1+t2+u0", 1)
    assert read(data) == "v1:t1+t2+u0"
    named = [
        ConsumerProtocolAssignmentTopicPartition(topic=name, partitions=[0, 1]) for name in ("t", "gone", "t")
    ]
    assert member_bytes.by_topic_id(named, image) == {topic_id("t"): frozenset([0, 1])}


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff\0\0", b"\0\0\0\0\0\7"], ids=repr)
def test_bytes_that_are_no_subscription_are_none(data: bytes) -> None:
    """Too short, of a negative version, or cut off."""
    assert member_bytes.subscription_of(data) is None


def test_a_newer_subscription_is_read_as_the_newest_known() -> None:
    """What it adds lies behind what is known."""
    newer = b"\0\7" + subscription(["t"], "t1")[2:] + b"more"
    parsed_subscription = member_bytes.subscription_of(newer)
    assert parsed_subscription is not None
    assert parsed_subscription.topics == ["t"]
    assert member_bytes.version_of(newer) == 3
