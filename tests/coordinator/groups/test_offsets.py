"""Committing, fetching and deleting offsets, through the handlers and the codec."""

from __future__ import annotations

from typing import Any

import pytest

from blumfeld.coordinator.groups.records import record
from blumfeld.coordinator.groups.shard import ForgetTopics
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.group_coordinator_records import (
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from blumfeld.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from blumfeld.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from blumfeld.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.coordinator.fakes import FakeContext, FakeLog, topic_id
from tests.coordinator.groups_fixture import Groups

T_ID = topic_id("t")


def commit_request(
    topic: str = "t", partition: int = 0, offset: int = 5, **fields: Any
) -> OffsetCommitRequest:
    """A commit for one partition, by a consumer outside of any group unless ``fields`` say otherwise."""
    metadata = fields.pop("metadata", "m")
    return OffsetCommitRequest(
        group_id=fields.pop("group_id", "g"),
        **{"generation_id_or_member_epoch": -1, **fields},
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                topic_id=topic_id(topic),
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_leader_epoch=3,
                        committed_metadata=metadata,
                    )
                ],
            )
        ],
    )


def commit(groups: Groups, version: int = 9, **fields: Any) -> ErrorCode:
    """The code of its one partition."""
    response = groups.ask(commit_request(**fields), version)
    return ErrorCode(response.topics[0].partitions[0].error_code)


def fetch(groups: Groups, group: str = "g", version: int = 7) -> dict[tuple[str, int], tuple[int, int, str]]:
    """Everything committed, by the single form."""
    response = groups.ask(OffsetFetchRequest(group_id=group, topics=None), version)
    assert response.error_code == 0
    return {
        (topic.name, p.partition_index): (p.committed_offset, p.committed_leader_epoch, p.metadata)
        for topic in response.topics
        for p in topic.partitions
    }


@pytest.fixture
def groups() -> Groups:
    return Groups()


@pytest.mark.parametrize("version", range(2, 10))
def test_what_was_committed_is_fetched(groups: Groups, version: int) -> None:
    """Leader epochs since v6; a retention of its own stays out of sight."""
    assert commit(groups, version) is ErrorCode.NONE
    epoch = 3 if version >= 6 else -1
    assert fetch(groups) == {("t", 0): (5, epoch, "m")}
    groups.reload()
    assert fetch(groups) == {("t", 0): (5, epoch, "m")}


def test_a_commit_is_answered_when_it_is_committed() -> None:
    groups = Groups(log=FakeLog(hold=True))
    answer = groups.send(commit_request(), 9)
    read = groups.send(OffsetFetchRequest(group_id="g", topics=None), 7)
    assert not answer.done
    assert not read.done
    groups.log.commit()
    assert read.result().topics[0].partitions[0].committed_offset == 5


def test_a_commit_that_fails_is_not_there_afterwards(groups: Groups) -> None:
    """NOT_COORDINATOR: the client looks for the coordinator and tries again."""
    commit(groups, offset=1)
    groups.log.refuse = ErrorCode.KAFKA_STORAGE_ERROR
    assert commit(groups, offset=2) is ErrorCode.NOT_COORDINATOR
    groups.runtime.advance(1_000)
    assert fetch(groups) == {("t", 0): (1, 3, "m")}


def test_a_commit_that_too_few_replicas_would_have_is_refused(groups: Groups) -> None:
    """COORDINATOR_NOT_AVAILABLE: the client tries again here, and nothing was loaded anew meanwhile."""
    commit(groups, offset=1)
    groups.log.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    assert commit(groups, offset=2) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert fetch(groups) == {("t", 0): (1, 3, "m")}
    assert commit(groups, offset=2) is ErrorCode.NONE
    counts = groups.coordinator.counts
    assert (counts.writes_refused, counts.shards_dropped) == (1, 0)


def test_deciding_on_a_commit_changes_nothing(groups: Groups) -> None:
    commit(groups, offset=1)
    before = dict(groups.shard.offsets.of_group("g"))
    decision = groups.shard.command(commit_request(offset=2), FakeContext(8, 9), 0)
    assert groups.shard.offsets.of_group("g") == before
    for item in decision.records:
        groups.shard.replay(item)
    assert groups.shard.offsets.of_group("g") != before


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": 4}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"metadata": "é" * 4097}, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ({"metadata": "é" * 4096}, ErrorCode.NONE),
        ({"metadata": "🐘" * 2049}, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ({"metadata": None}, ErrorCode.NONE),
    ],
)
def test_each_partition_is_checked(groups: Groups, fields: dict[str, Any], code: ErrorCode) -> None:
    assert commit(groups, **fields) is code
    assert len(groups.log.items) == (code is ErrorCode.NONE)


def with_unknown(request: OffsetCommitRequest) -> OffsetCommitRequest:
    """The same with a partition more that isn't there, and a topic that isn't."""
    (topic,) = request.topics
    topic.partitions.append(OffsetCommitRequestPartition(partition_index=99, committed_offset=5))
    request.topics += commit_request(topic="nowhere").topics
    return request


@pytest.mark.parametrize("version", range(2, 11))
def test_partitions_that_are_not_there_have_their_own_error_where_the_group_refuses(version: int) -> None:
    """As in Kafka, where a group doesn't hear of them: here of a member of a group that is gone."""
    request = with_unknown(commit_request(generation_id_or_member_epoch=3, member_id="m"))
    answer = Groups().ask(request, version)
    refused = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
    nowhere = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [[(p.partition_index, p.error_code) for p in topic.partitions] for topic in answer.topics] == [
        [(0, refused), (99, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
        [(0, nowhere)],
    ]


def test_a_commit_of_nothing_that_is_there_does_not_ask_the_group() -> None:
    member: dict[str, Any] = {"generation_id_or_member_epoch": 3, "member_id": "m"}
    groups = Groups()
    assert commit(groups, topic="nowhere", **member) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(groups, 10, topic="nowhere", **member) is ErrorCode.UNKNOWN_TOPIC_ID
    assert commit(groups, partition=99, **member) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_commit_of_nothing_that_is_there_does_not_tell_of_topics_that_may_not_be_read() -> None:
    def denied(operation: str, kind: str, name: str) -> bool:
        return (operation, kind) == ("Read", "Topic")

    answer = Groups().ask(commit_request(topic="nowhere"), 9, denied=denied)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_simple_group_has_no_members(groups: Groups) -> None:
    commit(groups)
    assert commit(groups, generation_id_or_member_epoch=3, member_id="m") is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(groups, member_id="m") is ErrorCode.NONE


def test_a_request_without_a_topic_that_can_be_committed_appends_nothing(groups: Groups) -> None:
    assert groups.ask(OffsetCommitRequest(group_id="g", topics=[]), 9).topics == []
    assert groups.log.batches == []


def test_topics_are_named_by_id_from_version_10(groups: Groups) -> None:
    assert commit(groups, 10) is ErrorCode.NONE
    assert commit(groups, 10, topic="nowhere") is ErrorCode.UNKNOWN_TOPIC_ID
    nameless = commit_request()
    nameless.topics[0].topic_id = bytes(16)
    assert groups.ask(nameless, 10).topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    topic_requests = [
        OffsetFetchRequestTopics(topic_id=T_ID, partition_indexes=[0, 1]),
        OffsetFetchRequestTopics(topic_id=topic_id("nowhere"), partition_indexes=[2]),
    ]
    response = groups.ask(
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topic_requests)]), 10
    )
    assert [
        (topic.topic_id, p.partition_index, p.committed_offset, p.error_code)
        for topic in response.groups[0].topics
        for p in topic.partitions
    ] == [
        (T_ID, 0, 5, 0),
        (T_ID, 1, -1, 0),
        (topic_id("nowhere"), 2, -1, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


def test_all_topics_by_id_leaves_out_those_that_are_gone(groups: Groups) -> None:
    commit(groups)
    commit(groups, topic="u")
    del groups.image.topics["u"]
    response = groups.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]), 10)
    assert [topic.topic_id for topic in response.groups[0].topics] == [T_ID]
    assert ("u", 0) in fetch(groups)


@pytest.mark.parametrize("version", range(1, 8))
def test_nothing_committed_is_no_error(version: int) -> None:
    """Neither for a partition nor for a group: anything else breaks librdkafka."""
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 9])]
    response = Groups().ask(OffsetFetchRequest(group_id="fresh", topics=topics), version)
    assert [(p.committed_offset, p.metadata, p.error_code) for p in response.topics[0].partitions] == [
        (-1, "", 0)
    ] * 2
    assert response.error_code == 0


@pytest.mark.parametrize("version", [8, 9])
def test_several_groups_are_fetched_at_once(groups: Groups, version: int) -> None:
    commit(groups, group_id="a", offset=1)
    commit(groups, group_id="b", offset=2)
    group_requests = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in ("b", "c", "a")]
    response = groups.ask(OffsetFetchRequest(groups=group_requests), version)
    offsets_by_group = [
        (group.group_id, [p.committed_offset for t in group.topics for p in t.partitions])
        for group in response.groups
    ]
    assert offsets_by_group == [("b", [2]), ("c", []), ("a", [1])]


def test_an_error_of_the_group_stands_where_the_version_has_a_place_for_it(groups: Groups) -> None:
    """v1: at each partition; v2–7: at the top; v8+: at the group."""
    groups.coordinator.stop()
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
    first = groups.ask(OffsetFetchRequest(group_id="g", topics=topics), 1)
    assert [p.error_code for p in first.topics[0].partitions] == [ErrorCode.NOT_COORDINATOR] * 2
    assert (
        groups.ask(OffsetFetchRequest(group_id="g", topics=topics), 2).error_code == ErrorCode.NOT_COORDINATOR
    )
    group_requests = [OffsetFetchRequestGroup(group_id="g", topics=None)]
    eighth = groups.ask(OffsetFetchRequest(groups=group_requests), 8)
    assert [group.error_code for group in eighth.groups] == [ErrorCode.NOT_COORDINATOR]


def test_offsets_that_an_old_broker_wrote_are_loaded() -> None:
    """Key type 0, and values of versions before there were leader epochs; a tombstone takes one away again."""
    old = record(LegacyOffsetCommitKey(group="g", topic="t", partition=1), OffsetCommitValue(offset=7), 0)
    gone = OffsetCommitKey(group="g", topic="t", partition=2)
    groups = Groups(log=FakeLog([old, record(gone, OffsetCommitValue(offset=8), 1), record(gone, None)]))
    assert fetch(groups) == {("t", 1): (7, -1, "")}


def delete(groups: Groups, topic: str = "t", partition: int = 0, group: str = "g", **options: Any) -> Any:
    partitions = [OffsetDeleteRequestPartition(partition_index=partition)]
    topics = [OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
    return groups.ask(OffsetDeleteRequest(group_id=group, topics=topics), **options)


def test_a_deleted_offset_is_forgotten_for_good(groups: Groups) -> None:
    commit(groups)
    commit(groups, partition=1)
    assert delete(groups).topics[0].partitions[0].error_code == 0
    assert delete(groups).topics[0].partitions[0].error_code == 0
    groups.reload()
    assert list(fetch(groups)) == [("t", 1)]


def test_offsets_of_a_deleted_topic_are_forgotten(groups: Groups) -> None:
    commit(groups, group_id="a")
    commit(groups, group_id="b", topic="u")
    commit(groups, group_id="b", partition=3)
    (forgotten,) = groups.coordinator.submit_to_all(ForgetTopics(("t", "other")), None)
    assert forgotten.done
    assert (fetch(groups, "a"), list(fetch(groups, "b"))) == ({}, [("u", 0)])
    written = len(groups.log.batches)
    groups.coordinator.submit_to_all(ForgetTopics(("t",)), None)
    assert len(groups.log.batches) == written


def test_offsets_of_a_group_that_is_not_there_can_not_be_deleted(groups: Groups) -> None:
    assert delete(groups).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    commit(groups)
    for topic, partition in (("nowhere", 0), ("t", 4)):
        response = delete(groups, topic, partition)
        assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_who_may_not_use_a_topic_is_refused_for_that_topic_only(groups: Groups) -> None:

    def denied(operation: str, kind: str, name: str) -> bool:
        return (kind, name) == ("Topic", "u")

    request = commit_request(topic="u")
    request.topics.append(commit_request(topic="t").topics[0])
    response = groups.ask(request, 9, denied=denied)
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert [(t.name, t.partitions[0].error_code) for t in response.topics] == [("u", refused), ("t", 0)]
    assert groups.ask(request, 10, denied=denied).topics[0].partitions[0].error_code == refused
    commit(groups, topic="u")
    everything = groups.ask(OffsetFetchRequest(group_id="g", topics=None), 7, denied=denied)
    assert [topic.name for topic in everything.topics] == ["t"]
    topics = [OffsetFetchRequestTopic(name="u", partition_indexes=[0])]
    named = groups.ask(OffsetFetchRequest(group_id="g", topics=topics), 7, denied=denied)
    assert [(p.committed_offset, p.error_code) for p in named.topics[0].partitions] == [(-1, refused)]
    assert delete(groups, "u", denied=denied).topics[0].partitions[0].error_code == refused
    assert ("u", 0) in fetch(groups)


def test_who_may_not_use_the_group_is_refused(groups: Groups) -> None:
    commit(groups)

    def denied(operation: str, kind: str, name: str) -> bool:
        return kind == "Group"

    refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    response = groups.ask(commit_request(), 9, denied=denied)
    assert response.topics[0].partitions[0].error_code == refused
    assert groups.ask(OffsetFetchRequest(group_id="g", topics=None), 7, denied=denied).error_code == refused
    assert delete(groups, denied=denied).error_code == refused
