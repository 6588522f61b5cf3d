"""Cases that can be read and must be refused: topics, transactions, groups, fetches."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from blumfeld.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic
from blumfeld.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from blumfeld.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from blumfeld.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from blumfeld.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from blumfeld.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from blumfeld.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from blumfeld.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from campaigns.bad_input.case import Case
from campaigns.bad_input.target import FETCH_VERSION, Target, name_of

FETCH_BYTES = 1 << 20

LOADING = ("NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE")
"""Answers of a coordinator that isn't there yet."""


def _topic(name: str, partitions: int = 1, replicas: int = 1) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)


def _create(title: str, expected: str, topic: CreatableTopic, configs: dict[str, str] | None = None) -> Case:
    return Case(f"CreateTopics: {title}", expected, lambda target: target.create_topic(topic, configs))


def _again(target: Target) -> str:
    return target.create_topic(_topic(target.topic))


def _fetch(
    offset: int = 0, *, topic: str = "", partition: int = 0, epoch: int = -1
) -> Callable[[Target], str]:
    def act(target: Target) -> str:
        wanted = FetchPartition(
            partition=partition,
            fetch_offset=offset,
            current_leader_epoch=epoch,
            partition_max_bytes=FETCH_BYTES,
        )
        topics = [FetchTopic(topic=topic or target.topic, partitions=[wanted])]
        answer = target.ask(FetchRequest(max_wait_ms=0, topics=topics), FETCH_VERSION, FetchResponse)
        return name_of(answer.error_code or answer.responses[0].partitions[0].error_code)

    return act


def _fetch_by_id(target: Target) -> str:
    wanted = FetchTopic(topic_id=b"\x01" * 16, partitions=[FetchPartition(partition_max_bytes=FETCH_BYTES)])
    answer = target.ask(FetchRequest(max_wait_ms=0, topics=[wanted]), 13, FetchResponse)
    return name_of(answer.error_code or answer.responses[0].partitions[0].error_code)


def _session(session_id: int, epoch: int) -> Callable[[Target], str]:
    def act(target: Target) -> str:
        request = FetchRequest(max_wait_ms=0, session_id=session_id, session_epoch=epoch)
        return name_of(target.ask(request, FETCH_VERSION, FetchResponse).error_code)

    return act


def _list_offsets(target: Target) -> str:
    wanted = ListOffsetsTopic(name="no-such-topic", partitions=[ListOffsetsPartition(timestamp=-1)])
    answer = target.ask(ListOffsetsRequest(replica_id=-1, topics=[wanted]), 7, ListOffsetsResponse)
    return name_of(answer.topics[0].partitions[0].error_code)


def _coordinator(key: str, key_type: int) -> Callable[[Target], str]:
    def act(target: Target) -> str:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        return name_of(target.ask(request, 4, FindCoordinatorResponse).coordinators[0].error_code)

    return act


def _end_transaction(target: Target) -> str:
    """Asked again until the coordinator is there: its topic is made with the first question."""
    request = EndTxnRequest(transactional_id="nobody", producer_id=1, producer_epoch=0, committed=True)
    for _ in range(200):
        if _coordinator("nobody", 1)(target) == "NONE":
            found = name_of(target.ask(request, 3, EndTxnResponse).error_code)
            if found not in LOADING:
                return found
        time.sleep(0.05)
    return "no coordinator"


def _join(group: str, session_timeout_ms: int = 10_000, member: str = "") -> Callable[[Target], str]:
    def act(target: Target) -> str:
        _group_is_loaded(target, group or f"{target.tag}-group")
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=10_000,
            member_id=member,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\1\0\0\0\0\0\0\0\0")],
        )
        return name_of(target.ask(request, 5, JoinGroupResponse).error_code)

    return act


def _heartbeat(target: Target) -> str:
    group = f"{target.tag}-nobody"
    _group_is_loaded(target, group)
    request = HeartbeatRequest(group_id=group, generation_id=5, member_id="nobody")
    return name_of(target.ask(request, 4, HeartbeatResponse).error_code)


def _commit(metadata: str = "", generation: int = -1, member: str = "") -> Callable[[Target], str]:
    def act(target: Target) -> str:
        group = f"{target.tag}-group"
        _group_is_loaded(target, group)
        partition = OffsetCommitRequestPartition(committed_offset=1, committed_metadata=metadata)
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            topics=[OffsetCommitRequestTopic(name=target.topic, partitions=[partition])],
        )
        answer = target.ask(request, 8, OffsetCommitResponse)
        return name_of(answer.topics[0].partitions[0].error_code)

    return act


def _group_is_loaded(target: Target, group: str) -> None:
    """The first question for a coordinator makes ``__consumer_offsets``: ask until the group's own partition is led."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        request = HeartbeatRequest(group_id=group, generation_id=0, member_id="x")
        if _coordinator(group, 0)(target) == "NONE":
            found = name_of(target.ask(request, 4, HeartbeatResponse).error_code)
            if found not in LOADING:
                return
        time.sleep(0.05)


def cases() -> Sequence[Case]:
    """All of them."""
    return (*_of_topics(), *_of_readers(), *_of_coordinators())


def _of_topics() -> Sequence[Case]:
    """CreateTopics and Metadata."""
    doubled = _topic("x", -1, -1)
    doubled.assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 1])]
    return (
        _create("a name with a slash", "INVALID_TOPIC_EXCEPTION", _topic("a/b")),
        _create("a name of 250 letters", "INVALID_TOPIC_EXCEPTION", _topic("a" * 250)),
        _create("the name ..", "INVALID_TOPIC_EXCEPTION", _topic("..")),
        _create("no name", "INVALID_TOPIC_EXCEPTION", _topic("")),
        Case("CreateTopics: a topic that is there", "TOPIC_ALREADY_EXISTS", _again),
        _create(
            "0 partitions",
            "INVALID_PARTITIONS",
            _topic("x", partitions=0),
        ),
        _create(
            "3 replicas on 1 broker",
            "INVALID_REPLICATION_FACTOR",
            _topic("x", replicas=3),
        ),
        _create(
            "a broker twice in an assignment",
            "INVALID_REPLICA_ASSIGNMENT",
            doubled,
        ),
        _create(
            "an unknown configuration key",
            "INVALID_CONFIG",
            _topic("x"),
            {"no.such.key": "1"},
        ),
        _create(
            "a configuration out of range",
            "INVALID_CONFIG",
            _topic("x"),
            {"retention.ms": "-5"},
        ),
        Case(
            "Metadata: make a topic of a bad name",
            "INVALID_TOPIC_EXCEPTION",
            lambda target: target.metadata("bad name", create=True),
        ),
        Case(
            "Metadata: an unknown topic, not to be made",
            "UNKNOWN_TOPIC_OR_PARTITION",
            lambda target: target.metadata("no-such-topic"),
        ),
    )


def _of_readers() -> Sequence[Case]:
    """Fetch and ListOffsets."""
    return (
        Case("Fetch: an unknown topic", "UNKNOWN_TOPIC_OR_PARTITION", _fetch(topic="no-such-topic")),
        Case("Fetch: an unknown partition", "UNKNOWN_TOPIC_OR_PARTITION", _fetch(partition=9)),
        Case("Fetch: an unknown topic id", "UNKNOWN_TOPIC_ID", _fetch_by_id),
        Case("Fetch: beyond the end", "OFFSET_OUT_OF_RANGE", _fetch(10**12)),
        Case("Fetch: a negative offset", "OFFSET_OUT_OF_RANGE", _fetch(-7)),
        Case("Fetch: a leader epoch of the future", "UNKNOWN_LEADER_EPOCH", _fetch(epoch=99)),
        Case("Fetch: an unknown session", "FETCH_SESSION_ID_NOT_FOUND", _session(123_456, 1)),
        Case("ListOffsets: an unknown topic", "UNKNOWN_TOPIC_OR_PARTITION", _list_offsets),
    )


def _of_coordinators() -> Sequence[Case]:
    """Transactions and groups."""
    return (
        Case(
            "InitProducerId: an empty transactional id",
            "INVALID_REQUEST",
            lambda target: name_of(target.producer_id("").error_code),
        ),
        Case("EndTxn: a transactional id that nobody began", "INVALID_PRODUCER_ID_MAPPING", _end_transaction),
        Case("FindCoordinator: of an unknown kind", "INVALID_REQUEST", _coordinator("x", 9)),
        Case("JoinGroup: no group id", "INVALID_GROUP_ID", _join("")),
        Case("JoinGroup: a session of 1 ms", "INVALID_SESSION_TIMEOUT", _join("bad-session", 1)),
        Case("JoinGroup: a member nobody knows", "UNKNOWN_MEMBER_ID", _join("bad-member", member="nobody")),
        Case("Heartbeat: of a group that isn't", "UNKNOWN_MEMBER_ID", _heartbeat),
        Case(
            "OffsetCommit: a member nobody knows",
            "ILLEGAL_GENERATION",
            _commit(generation=3, member="nobody"),
        ),
        Case("OffsetCommit: 10 kB of metadata", "OFFSET_METADATA_TOO_LARGE", _commit("m" * 10_000)),
    )
