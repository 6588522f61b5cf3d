"""Every command of the groups coordinator with extreme values in every field: the shard stays."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld.coordinator.runtime.host import HostState
from blumfeld.spi.completion import Completion
from blumfeld.spi.groups import GroupProtocol
from blumfeld.wire.api import API_BY_KEY, request_class
from blumfeld.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from blumfeld.wire.messages.heartbeat import HeartbeatRequest
from blumfeld.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from blumfeld.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from blumfeld.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from blumfeld.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from blumfeld_groups_classic import ClassicGroupProtocol
from blumfeld_groups_kip848.protocol import ConsumerGroupProtocol
from tests.coordinator.fakes import topic_id
from tests.coordinator.groups_fixture import Groups
from tests.everyday import examples
from tests.extreme_values import extremes_of, one_at_a_time, requests

EXAMPLES = 20
"""For each API; fewer in an everyday run."""
MODERN_MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"
MODERN_EPOCH = 2
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\0\0\0\0"
"""A subscription of the classic consumer protocol: version 0, topic t."""
ORDINARY: dict[str, list[Any]] = {
    "group_id": ["classic", "modern", "simple", "none"],
    "groups": ["classic", "modern", "simple", "none"],
    "groups_names": ["classic", "modern", "simple", "none"],
    "group_ids": ["classic", "modern", "simple", "none"],
    "group_instance_id": [None, "static"],
    "instance_id": [None, "static"],
    "member_id": ["client-1", MODERN_MEMBER, ""],
    "generation_id": [1, -1],
    "generation_id_or_member_epoch": [1, MODERN_EPOCH, -1],
    "member_epoch": [0, MODERN_EPOCH, -1],
    "name": ["t", "u", "range"],
    "topic_id": [topic_id("t"), topic_id("u")],
    "topics": ["t", "u"],
    "subscribed_topic_names": ["t", "u"],
    "subscribed_topic_regex": ["t.*"],
    "server_assignor": [None, "uniform", "range"],
    "partition_index": [0, 1],
    "partition_indexes": [0, 1],
    "partitions": [0, 1],
    "committed_offset": [0, 7],
    "session_timeout_ms": [10_000],
    "rebalance_timeout_ms": [10_000],
    "protocol_type": ["consumer"],
    "protocol_name": ["range"],
    "metadata": [SUBSCRIPTION],
    "transactional_id": ["tx"],
    "producer_id": [1],
    "producer_epoch": [0],
    "states_filter": ["Stable"],
    "types_filter": ["classic", "consumer"],
}


def served() -> Groups:
    """A shard with a classic group, a consumer group and a group that only commits."""
    protocols: list[GroupProtocol] = [ClassicGroupProtocol(), ConsumerGroupProtocol()]
    config = {
        "group.consumer.assignment.interval.ms": 0,
    }
    groups = Groups(config, protocols=protocols, transactions=True)
    groups.image.features_epoch = 1
    join = JoinGroupRequest(
        group_id="classic",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    )
    member = groups.ask(join).member_id
    join.member_id = member
    groups.send(join)
    groups.runtime.advance(1)
    groups.ask(
        SyncGroupRequest(
            group_id="classic",
            generation_id=1,
            member_id=member,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=member, assignment=b"all")],
        )
    )
    groups.ask(
        ConsumerGroupHeartbeatRequest(
            group_id="modern",
            member_id=MODERN_MEMBER,
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
    )
    assert groups.ask(commit("simple", 1)).topics[0].partitions[0].error_code == 0
    return groups


def commit(group_id: str, offset: int, **more: Any) -> OffsetCommitRequest:
    """Commit one offset of topic t, as a consumer outside of any group."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic_request = OffsetCommitRequestTopic(name="t", topic_id=topic_id("t"), partitions=[partition])
    return OffsetCommitRequest(group_id=group_id, topics=[topic_request], **more)


def check(groups: Groups) -> None:
    """The shard has met no defect, serves an ordinary command, and is the same after a replay of its log."""
    assert groups.events.said == []
    assert [host.state for host in groups.coordinator.hosts] == [HostState.ACTIVE]
    assert groups.ask(commit("bystander", 5)).topics[0].partitions[0].error_code == 0
    assert offset_of(groups, "bystander") == 5
    groups.reload()
    groups.runtime.advance(1)
    assert offset_of(groups, "bystander") == 5
    groups.runtime.advance(120_000)
    assert groups.events.said == []


def offset_of(groups: Groups, group_id: str) -> int:
    """What a group committed for the first partition of topic t."""
    fetch_request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)])
    fetched = groups.ask(fetch_request, 9).groups[0].topics
    offset: int = fetched[0].partitions[0].committed_offset
    return offset


def places() -> list[Any]:
    """Every API of the coordinator."""
    handlers = Groups(
        protocols=[ClassicGroupProtocol(), ConsumerGroupProtocol()], transactions=True
    ).handlers.values()
    return [
        pytest.param(handler.key, handler.min_version, handler.max_version, id=API_BY_KEY[handler.key].name)
        for handler in handlers
    ]


@pytest.mark.parametrize(("key", "low", "high"), places())
def test_extreme_values_cost_nobody_the_shard(key: int, low: int, high: int) -> None:
    """Each request has an answer of its version; no exception escapes, none is logged; others are served."""

    @settings(max_examples=examples(EXAMPLES))
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        groups = served()
        sent: list[Completion[Any]] = []
        for _ in range(data.draw(st.integers(1, 4))):
            version = data.draw(st.integers(low, high))
            request = data.draw(requests(request_class(key), version, ORDINARY))
            sent.append(groups.send(request, version))
            groups.runtime.advance(data.draw(st.sampled_from([0, 1, 10_000])))
        groups.runtime.advance(11_000)
        check(groups)
        for completion in sent:
            assert completion.error is None

    run()


@pytest.mark.parametrize(("key", "low", "high"), places())
def test_each_field_by_itself_has_no_value_that_is_a_defect(key: int, low: int, high: int) -> None:
    for version in range(low, high + 1):
        groups = served()
        sent = [
            groups.send(request, version) for request in one_at_a_time(request_class(key), version, ORDINARY)
        ]
        groups.runtime.advance(11_000)
        check(groups)
        assert all(completion.done and completion.error is None for completion in sent)


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize("retention_time_ms", extremes_of("int64"))
def test_a_commits_own_retention_has_no_bounds(version: int, retention_time_ms: int) -> None:
    """Kafka answers 0 to each. What is asked beyond the end of time is kept until then."""
    groups = served()
    answer = groups.ask(commit("g", 3, retention_time_ms=retention_time_ms), version)
    assert answer.topics[0].partitions[0].error_code == 0
    assert offset_of(groups, "g") == 3
    if retention_time_ms > 2**62:
        groups.runtime.advance(10_000)
        groups.reload()
        assert offset_of(groups, "g") == 3
    check(groups)


def test_an_ordinary_member_is_unmoved() -> None:
    groups = served()
    beat = HeartbeatRequest(group_id="classic", generation_id=1, member_id="client-1")
    assert groups.ask(beat).error_code == 0
    again = ConsumerGroupHeartbeatRequest(
        group_id="modern", member_id=MODERN_MEMBER, member_epoch=MODERN_EPOCH
    )
    assert groups.ask(again).error_code == 0
