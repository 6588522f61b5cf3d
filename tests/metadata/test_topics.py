"""CreateTopics, DeleteTopics, CreatePartitions: each of the controller's rules by its error."""

from __future__ import annotations

import pytest

from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from blumfeld.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from blumfeld.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from blumfeld.wire.messages.metadata_records import ConfigRecord, PartitionRecord, TopicRecord
from tests.metadata.driven import Driven, assigned, directory_id, numbered, replayed


@pytest.fixture
def three() -> Driven:
    """Three brokers that serve."""
    driven = Driven()
    driven.join(1, 2, 3)
    return driven


def test_a_topic_is_its_record_its_configs_and_its_partitions_in_kafkas_order(three: Driven) -> None:
    before = len(three.log)
    configs = [
        CreatableTopicConfig(name="retention.ms", value="1000"),
        CreatableTopicConfig(name="cleanup.policy", value="compact"),
    ]
    result = three.create("alpha", 2, 3, configs=configs)
    made = three.log[before:]
    assert [type(r) for r in made] == [
        TopicRecord,
        ConfigRecord,
        ConfigRecord,
        PartitionRecord,
        PartitionRecord,
    ]
    assert [r.name for r in made if isinstance(r, ConfigRecord)] == ["cleanup.policy", "retention.ms"]
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 2, 3)
    assert result.topic_id == three.image.topics["alpha"].topic_id
    assert three.image.config(2, "alpha") == {"cleanup.policy": "compact", "retention.ms": "1000"}


def test_the_answer_describes_every_key_of_the_new_topic(three: Driven) -> None:
    result = three.create("alpha", configs=[CreatableTopicConfig(name="retention.ms", value="1000")])
    shown = {c.name: (c.value, c.config_source) for c in result.configs or ()}
    assert shown["retention.ms"] == ("1000", 1)
    assert shown["segment.bytes"] == ("1073741824", 5)
    assert list(shown) == sorted(shown)


def test_replicas_go_round_so_that_leadership_is_spread(three: Driven) -> None:
    three.create("alpha", 6, 2)
    leaders = [three.partition("alpha", n).leader for n in range(6)]
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3]
    first = three.partition("alpha", 0)
    assert first.isr == first.replicas
    assert (first.leader, first.leader_epoch, first.partition_epoch) == (first.replicas[0], 0, 0)
    assert first.directories == tuple(directory_id(r) for r in first.replicas)


def test_minus_one_means_the_brokers_defaults() -> None:
    driven = Driven({"num.partitions": 4, "default.replication.factor": 2})
    driven.join(1, 2)
    result = driven.create("alpha", -1, -1)
    assert (result.num_partitions, result.replication_factor) == (4, 2)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (".", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("ä", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a" * 250, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a\n", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a" * 249, ErrorCode.NONE),
        ("__cluster_metadata", ErrorCode.INVALID_REQUEST),
        ("taken", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("with.dot", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("with-dot", ErrorCode.NONE),
    ],
)
def test_names(three: Driven, name: str, code: ErrorCode) -> None:
    three.create("taken")
    three.create("with_dot")
    assert three.create(name).error_code == code


@pytest.mark.parametrize(
    ("partitions", "factor", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-2, 1, ErrorCode.INVALID_PARTITIONS),
        (10_001, 1, ErrorCode.POLICY_VIOLATION),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, -2, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 4, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_numbers_that_cannot_be(three: Driven, partitions: int, factor: int, code: ErrorCode) -> None:
    before = len(three.log)
    result = three.create("alpha", partitions, factor)
    assert result.error_code == code
    assert result.error_message
    assert len(three.log) == before


def test_without_a_broker_that_serves_there_is_no_topic() -> None:
    driven = Driven()
    driven.register(1)
    assert driven.create("alpha").error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_manual_assignment_is_taken_as_it_is(three: Driven) -> None:
    assert three.create("alpha", **assigned([2, 3], [3, 1])).error_code == 0
    assert three.partition("alpha", 0).replicas == (2, 3)
    assert three.partition("alpha", 1).leader == 3


@pytest.mark.parametrize(
    "partitions",
    [
        ((0, []),),
        ((0, [1, 1]),),
        ((0, [9]),),
        ((0, [1]), (1, [1, 2])),
        ((0, [1]), (0, [2])),
        ((0, [1]), (2, [2])),
        ((1, [1]),),
    ],
    ids=["empty", "twice", "unknown", "uneven", "double", "hole", "from one"],
)
def test_assignments_that_cannot_be(three: Driven, partitions: tuple[tuple[int, list[int]], ...]) -> None:
    result = three.create("alpha", **numbered(*partitions))
    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_an_assignment_beside_numbers_is_refused(three: Driven) -> None:
    for partitions, factor in ((1, -1), (-1, 1)):
        more = {**assigned([1]), "partitions": partitions, "factor": factor}
        assert three.create("alpha", **more).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("key", "value"),
    [("no.such.key", "1"), ("retention.ms", "soon"), ("segment.bytes", "1"), ("retention.ms", None)],
)
def test_configs_are_checked(three: Driven, key: str, value: str | None) -> None:
    result = three.create("alpha", configs=[CreatableTopicConfig(name=key, value=value)])
    assert result.error_code == ErrorCode.INVALID_CONFIG


def test_a_name_twice_is_refused_once(three: Driven) -> None:
    topics = [CreatableTopic(name=n, num_partitions=1, replication_factor=1) for n in ("a", "b", "a")]
    response = three.do(CreateTopicsRequest(topics=topics), CreateTopicsResponse)
    assert [(t.name, t.error_code) for t in response.topics] == [("a", 42), ("b", 0)]


def test_topics_of_one_request_see_each_other(three: Driven) -> None:
    topics = [CreatableTopic(name=n, num_partitions=3, replication_factor=1) for n in ("a.b", "a_b", "c")]
    response = three.do(CreateTopicsRequest(topics=topics), CreateTopicsResponse)
    assert [t.error_code for t in response.topics] == [0, 17, 0]


def test_validate_only_answers_as_if_and_writes_nothing(three: Driven) -> None:
    topic = CreatableTopic(name="alpha", num_partitions=2, replication_factor=1)
    decision = three.decide(CreateTopicsRequest(topics=[topic], validate_only=True))
    assert decision.records == []
    assert isinstance(decision.response, CreateTopicsResponse)
    assert decision.response.topics[0].num_partitions == 2


def test_a_topic_goes_by_name_or_by_id_with_its_configs(three: Driven) -> None:
    three.create("alpha", configs=[CreatableTopicConfig(name="retention.ms", value="1")])
    topic_id = three.create("beta").topic_id
    assert three.delete(DeleteTopicState(name="alpha"), DeleteTopicState(topic_id=topic_id)) == [
        ("alpha", 0),
        ("beta", 0),
    ]
    assert not three.image.topics
    assert not three.image.config(2, "alpha")
    assert replayed(three.log) == three.image


def test_names_in_the_old_form(three: Driven) -> None:
    three.create("alpha")
    response = three.do(DeleteTopicsRequest(topic_names=["alpha", "beta"]), DeleteTopicsResponse)
    assert [(r.name, r.error_code) for r in response.responses] == [("alpha", 0), ("beta", 3)]


def test_topics_that_cannot_be_deleted(three: Driven) -> None:
    topic_id = three.create("alpha").topic_id
    assert three.delete(DeleteTopicState(topic_id=bytes(15) + b"\x09")) == [(None, 100)]
    assert three.delete(DeleteTopicState()) == [(None, 42)]
    assert three.delete(DeleteTopicState(name="alpha", topic_id=topic_id)) == [("alpha", 42)]
    both = three.delete(DeleteTopicState(name="alpha"), DeleteTopicState(topic_id=topic_id))
    assert both == [("alpha", 42), ("alpha", 42)]
    assert three.delete(*[DeleteTopicState(name="alpha")] * 2) == [("alpha", 42)]
    assert "alpha" in three.image.topics


def test_deletion_may_be_switched_off() -> None:
    driven = Driven({"delete.topic.enable": False})
    driven.join(1)
    driven.create("alpha")
    assert driven.delete(DeleteTopicState(name="alpha")) == [("alpha", 73)]


def grow(driven: Driven, name: str, count: int, *assignments: list[int], only: bool = False) -> int:
    """CreatePartitions of one topic; the error."""
    given = [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments] or None
    topic = CreatePartitionsTopic(name=name, count=count, assignments=given)
    request = CreatePartitionsRequest(topics=[topic], validate_only=only)
    return driven.do(request, CreatePartitionsResponse).results[0].error_code


def test_a_topic_grows_with_its_replication_factor(three: Driven) -> None:
    three.create("alpha", 1, 2)
    assert grow(three, "alpha", 3) == 0
    assert [len(p.replicas) for p in three.image.topics["alpha"].partitions.values()] == [2, 2, 2]
    assert grow(three, "alpha", 4, [3, 1]) == 0
    assert three.partition("alpha", 3).replicas == (3, 1)
    assert replayed(three.log) == three.image


def test_growth_that_cannot_be(three: Driven) -> None:
    three.create("alpha", 2, 2)
    assert grow(three, "beta", 3) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert grow(three, "alpha", 2) == ErrorCode.INVALID_PARTITIONS
    assert grow(three, "alpha", 1) == ErrorCode.INVALID_PARTITIONS
    assert grow(three, "alpha", 4, [1, 2]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(three, "alpha", 3, [1]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(three, "alpha", 3, [1, 9]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(three, "alpha", 20_000) == ErrorCode.POLICY_VIOLATION
    assert grow(three, "alpha", 3, only=True) == ErrorCode.NONE
    assert len(three.image.topics["alpha"].partitions) == 2
