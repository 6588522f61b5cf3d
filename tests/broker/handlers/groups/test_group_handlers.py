"""Listing, describing and deleting groups: what one shard says, and how several are merged."""

from __future__ import annotations

from typing import Any

import pytest

from blumfeld.coordinator.groups.records import record
from blumfeld.coordinator.runtime.host import REPLAY_STEP_RECORDS
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.delete_groups import DeleteGroupsRequest
from blumfeld.wire.messages.describe_groups import DescribeGroupsRequest
from blumfeld.wire.messages.group_coordinator_records import GroupMetadataKey
from blumfeld.wire.messages.heartbeat import HeartbeatRequest
from blumfeld.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from blumfeld.wire.messages.list_groups import ListGroupsRequest
from tests.coordinator.fakes import FakeContext, FakeLog, code_of
from tests.coordinator.groups.test_offsets import commit, fetch
from tests.coordinator.groups_fixture import SHARD, Groups


def join(groups: Groups, group: str, version: int = 3) -> None:
    """One member, who is in at once."""
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    assert groups.ask(request, version).error_code == 0


def listed(groups: Groups, version: int | None = None, **filters: Any) -> list[tuple[str, str, str]]:
    """(group, state, type) of ListGroups."""
    response = groups.ask(ListGroupsRequest(**filters), version)
    assert response.error_code == 0
    return [(group.group_id, group.group_state, group.group_type) for group in response.groups]


def test_groups_with_members_and_simple_groups_are_listed() -> None:
    """A simple group has offsets and nothing else; filters ignore case."""
    groups = Groups()
    join(groups, "members")
    commit(groups, group_id="simple")
    completing, empty = ("members", "CompletingRebalance", "classic"), ("simple", "Empty", "classic")
    assert listed(groups) == [completing, empty]
    assert listed(groups, states_filter=["empty"]) == [empty]
    assert listed(groups, types_filter=["CLASSIC"]) == [completing, empty]
    assert listed(groups, types_filter=["consumer"]) == []
    assert listed(groups, 0) == [("members", "", ""), ("simple", "", "")]


def test_listing_while_a_shard_loads_says_so() -> None:
    """A list with holes would be taken for the truth."""
    tombstone = record(GroupMetadataKey(group="g"), None)
    groups = Groups(log=FakeLog([tombstone] * (REPLAY_STEP_RECORDS + 1)))
    assert groups.ask(ListGroupsRequest()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    groups.runtime.run_turn()
    assert listed(groups) == []


def test_a_node_without_shards_lists_nothing() -> None:
    """Others have them; a shard that has just gone is another's too."""
    groups = Groups()
    commit(groups)
    groups.log.refuse = ErrorCode.KAFKA_STORAGE_ERROR
    commit(groups)
    assert listed(groups) == []
    groups.coordinator.resigned(SHARD)
    assert listed(groups) == []


def test_who_may_describe_the_cluster_sees_all_groups_others_their_own() -> None:
    """As Kafka does."""
    groups = Groups()
    commit(groups, group_id="mine")
    commit(groups, group_id="yours")

    def seen(*denied: tuple[str, str]) -> list[str]:
        response = groups.ask(ListGroupsRequest(), denied=lambda _, kind, name: (kind, name) in denied)
        return [group.group_id for group in response.groups]

    assert seen(("Group", "yours")) == ["mine", "yours"]
    assert seen(("Cluster", "kafka-cluster"), ("Group", "yours")) == ["mine"]


def test_describing_goes_group_by_group_in_the_order_asked() -> None:
    """Errors among them."""
    groups = Groups()
    join(groups, "members")
    commit(groups, group_id="simple")
    request = DescribeGroupsRequest(groups=["simple", "forbidden", "members", "nobody"])
    response = groups.ask(request, denied=lambda _, kind, name: name == "forbidden")
    assert [(g.group_id, g.group_state, g.error_code) for g in response.groups] == [
        ("simple", "Empty", 0),
        ("forbidden", "", ErrorCode.GROUP_AUTHORIZATION_FAILED),
        ("members", "CompletingRebalance", 0),
        ("nobody", "Dead", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    assert response.groups[3].error_message == "Group nobody not found."


def test_what_may_be_done_with_a_group_is_told_on_request() -> None:
    """A bit for each operation; nothing where nobody asked."""
    groups = Groups()
    commit(groups)
    request = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
    (group,) = groups.ask(request).groups
    assert group.authorized_operations == 3400, "as Kafka answers without an authorizer"
    (group,) = groups.ask(request, denied=lambda operation, *_: operation == "Delete").groups
    assert group.authorized_operations == 3400 - (1 << 6)
    (group,) = groups.ask(DescribeGroupsRequest(groups=["g"])).groups
    assert group.authorized_operations == -(2**31)


@pytest.mark.parametrize("version", range(6))
def test_a_group_that_is_not_there_is_dead_without_an_error_before_version_6(version: int) -> None:
    """Admin clients of that time take it for an empty group."""
    (dead,) = Groups().ask(DescribeGroupsRequest(groups=["nobody"]), version).groups
    assert (dead.group_state, dead.error_code) == ("Dead", 0)


def test_deleting_takes_offsets_and_group() -> None:
    """Each on its own; for good."""
    groups = Groups()
    commit(groups, group_id="simple")
    join(groups, "members")
    request = DeleteGroupsRequest(groups_names=["members", "simple", "nobody", "forbidden"])
    response = groups.ask(request, denied=lambda _, kind, name: name == "forbidden")
    assert [(r.group_id, r.error_code) for r in response.results] == [
        ("members", ErrorCode.NON_EMPTY_GROUP),
        ("simple", 0),
        ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
        ("forbidden", ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ]
    assert fetch(groups, "simple") == {}
    groups.reload()
    assert listed(groups) == []


def test_a_group_named_twice_is_deleted_once() -> None:
    """And answered once, as Kafka does."""
    groups = Groups()
    commit(groups)
    response = groups.ask(DeleteGroupsRequest(groups_names=["g", "g"]))
    assert [r.error_code for r in response.results] == [0]


def test_an_api_of_a_group_type_needs_a_group_id_and_the_right_to_it() -> None:
    """INVALID_GROUP_ID, GROUP_AUTHORIZATION_FAILED."""
    groups = Groups()
    assert groups.ask(HeartbeatRequest(group_id="")).error_code == ErrorCode.INVALID_GROUP_ID
    request = HeartbeatRequest(group_id="g", member_id="m")
    assert groups.ask(request, denied=lambda *_: True).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_a_build_without_group_types_keeps_offsets() -> None:
    """It advertises what it can do, and no more."""
    groups = Groups(protocols=[])
    assert sorted(groups.handlers) == [8, 9, 15, 16, 42, 47]
    assert commit(groups) is ErrorCode.NONE
    assert listed(groups) == [("g", "Empty", "classic")]
    unserved = groups.coordinator.submit("g", HeartbeatRequest(group_id="g"), FakeContext(12, 4))
    assert code_of(unserved) is ErrorCode.UNSUPPORTED_VERSION
