"""Metadata, DescribeCluster, DescribeTopicPartitions and FindCoordinator: what a client is told of the cluster."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from blumfeld.broker.handlers.broker.api_03_metadata import PARTITIONS_AT_ONCE, handlers
from blumfeld.spi.cluster import BrokerImage, Endpoint
from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import Controller
from blumfeld.spi.steps import CHUNK_ELEMENTS
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.create_topics import CreateTopicsRequest
from blumfeld.wire.messages.describe_cluster import DescribeClusterRequest
from blumfeld.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.harness import CONTROLLER_LISTENER, BrokerHarness, Permissions
from tests.coordinator.fakes import FakeContext


@pytest.fixture
def broker() -> BrokerHarness:
    harness = BrokerHarness(partitions=2)
    harness.create_topic("__consumer_offsets")
    return harness


def named(*names: str, create: bool = True) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create)


def topics_of(answer: Any) -> dict[str | None, int]:
    return {topic.name: topic.error_code for topic in answer.topics}


def add_node(broker: BrokerHarness, node: int, *, listener: str = "PLAINTEXT", fenced: bool = False) -> None:
    broker.metadata.image.brokers[node] = BrokerImage(
        broker_id=node,
        epoch=9,
        incarnation_id=bytes(16),
        endpoints=(Endpoint(listener, "elsewhere", 9000 + node),),
        rack="r",
        fenced=fenced,
    )


@pytest.mark.parametrize("version", range(14))
def test_the_whole_cluster_in_every_version(broker: BrokerHarness, version: int) -> None:
    """No topics means all of them in version 0, and none later."""
    answer = broker.ask(MetadataRequest(topics=None if version else []), version)
    assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [(1, "127.0.0.1", 9092)]
    assert list(topics_of(answer)) == ["__consumer_offsets", "t"]
    assert [p.partition_index for p in answer.topics[1].partitions] == [0, 1]
    partition = answer.topics[1].partitions[0]
    assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (1, [1], [1])
    if version >= 1:
        assert [topic.is_internal for topic in answer.topics] == [True, False]
        assert answer.controller_id == 1
        assert broker.ask(MetadataRequest(topics=[]), version).topics == []
    if version >= 10:
        assert answer.topics[1].topic_id == broker.metadata.image.topics["t"].topic_id


def test_topics_by_id(broker: BrokerHarness) -> None:
    known = broker.metadata.image.topics["t"].topic_id
    request = MetadataRequest(
        topics=[MetadataRequestTopic(topic_id=i, name=None) for i in (known, b"?" * 16)]
    )
    answer = broker.ask(request, 12)
    assert [(t.name, t.error_code) for t in answer.topics] == [("t", 0), (None, ErrorCode.UNKNOWN_TOPIC_ID)]


@pytest.mark.parametrize("version", [10, 11])
def test_ids_before_their_version_are_refused(broker: BrokerHarness, version: int) -> None:
    """The field is there from version 10 on; Kafka answers INVALID_REQUEST at each topic."""
    for topic in (MetadataRequestTopic(name=None), MetadataRequestTopic(name="t", topic_id=b"\1" * 16)):
        (answered,) = broker.ask(MetadataRequest(topics=[topic]), version).topics
        assert (answered.error_code, answered.name) == (ErrorCode.INVALID_REQUEST, topic.name or "")


def test_a_missing_topic_is_made_and_there_the_next_time(broker: BrokerHarness) -> None:
    assert topics_of(broker.ask(named("new"), 9)) == {"new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert topics_of(broker.ask(named("new"), 9)) == {"new": 0}


def created(broker: BrokerHarness) -> list[str]:
    return [topic.name for command in broker.metadata.sent(CreateTopicsRequest) for topic in command.topics]


def test_creation_may_be_forbidden_by_the_client_or_the_configuration(broker: BrokerHarness) -> None:
    assert topics_of(broker.ask(named("new", create=False), 4)) == {"new": 3}
    strict = BrokerHarness({"auto.create.topics.enable": False})
    assert topics_of(strict.ask(named("new"), 9)) == {"new": 3}
    assert created(broker) == created(strict) == []


@pytest.mark.parametrize(
    ("right", "code"),
    [
        (("Create", "Cluster"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("Create", "Topic"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("Alter", "Topic"), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_a_client_needs_a_right_to_create_what_it_asks_for(right: tuple[str, str], code: ErrorCode) -> None:
    may = {right, ("Describe", "Topic")}
    broker = BrokerHarness(authorizer=Permissions(lambda operation, kind, _: (operation, kind) in may))
    assert topics_of(broker.ask(named("new"), 9)) == {"new": code}
    assert created(broker) == (["new"] if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else [])


def test_a_long_list_of_all_topics_leaves_out_what_may_not_be_described() -> None:
    broker = BrokerHarness(partitions=2, authorizer=Permissions(lambda *asked: asked[2] != "secret"))
    broker.create_topic("secret", PARTITIONS_AT_ONCE)
    assert topics_of(broker.ask(MetadataRequest(topics=None), 9)) == {"t": 0}


def test_topics_that_may_not_be_described_are_looked_through_in_steps() -> None:
    """However few are told: each takes a verdict of its own."""
    asked = 0

    def denied(operation: str, kind: str, name: str) -> bool:
        nonlocal asked
        asked += 1
        return kind == "Topic"

    broker = BrokerHarness(partitions=1)
    topics = broker.metadata.image.topics
    known = topics["t"]
    topics.update({f"t{n}": replace(known, name=f"t{n}") for n in range(PARTITIONS_AT_ONCE)})
    (handler,) = handlers(broker.broker.ports)
    steps: Any = handler.handle(MetadataRequest(topics=None), FakeContext(3, 9, denied=denied))
    most = 0
    for _ in steps:
        most, asked = max(most, asked), 0
    assert 0 < most <= CHUNK_ELEMENTS + 1


def test_an_illegal_name_is_not_made(broker: BrokerHarness) -> None:
    assert topics_of(broker.ask(named("no/slash", ".."), 9)) == {"no/slash": 17, "..": 17}
    assert created(broker) == []


def test_while_a_topic_is_being_made_nobody_asks_again(broker: BrokerHarness) -> None:
    broker.metadata.held = []
    broker.ask(named("new"), 9)
    broker.ask(named("new"), 9)
    assert created(broker) == ["new"]


@pytest.mark.parametrize("by_id", [False, True])
def test_a_leader_that_is_opening_its_log_is_waited_for(broker: BrokerHarness, by_id: bool) -> None:
    """A client that is told of a leader goes there at once, and should be served."""

    def asks_for(name: str) -> MetadataRequest:
        topic_id = broker.metadata.image.topics[name].topic_id
        by_its_id = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id)])
        return by_its_id if by_id else named(name)

    broker.storage.open_slowly = Completion()
    broker.create_topic("slow")
    request = asks_for("slow")
    exchange = broker.send(request, 12)
    assert not exchange.settled
    assert broker.send(asks_for("t"), 12).settled
    broker.storage.open_slowly.complete(None)
    broker.runtime.run_turn()
    assert topics_of(broker.response(exchange, request, 12)) == {"slow": 0}


def test_leaders_that_cannot_be_reached(broker: BrokerHarness) -> None:
    add_node(broker, 2, listener="OTHER")
    add_node(broker, 3, fenced=True)
    for index, leader in ((0, 2), (1, 3)):
        broker.change_partition(index=index, replicas=(leader,), leader=leader, epoch=1)

    def shown(version: int) -> list[tuple[int, int, list[int]]]:
        partitions = broker.ask(named("t"), version).topics[0].partitions
        return [(p.error_code, p.leader_id, p.offline_replicas) for p in partitions]

    assert shown(6) == [(ErrorCode.LISTENER_NOT_FOUND, -1, [2]), (ErrorCode.LEADER_NOT_AVAILABLE, -1, [3])]
    assert shown(5) == [(ErrorCode.LEADER_NOT_AVAILABLE, -1, [2]), (ErrorCode.LEADER_NOT_AVAILABLE, -1, [3])]
    assert [b.node_id for b in broker.ask(named("t"), 6).brokers] == [1]


@pytest.mark.parametrize("version", range(8, 14))
def test_authorized_operations_are_told_when_asked_for(broker: BrokerHarness, version: int) -> None:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="t")], include_topic_authorized_operations=True
    )
    request.include_cluster_authorized_operations = version <= 10
    answer = broker.ask(request, version)
    assert answer.topics[0].topic_authorized_operations == 3576
    assert answer.cluster_authorized_operations == (8096 if version <= 10 else -(2**31))


# DescribeCluster


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_cluster_is_described_and_fenced_brokers_when_asked_for(
    broker: BrokerHarness, version: int
) -> None:
    add_node(broker, 2, fenced=True)
    answer = broker.ask(DescribeClusterRequest(), version)
    assert (answer.cluster_id, answer.controller_id) == (broker.metadata.image.cluster_id, 1)
    assert [b.broker_id for b in answer.brokers] == [1]
    answer = broker.ask(DescribeClusterRequest(include_fenced_brokers=True), 2)
    assert [(b.broker_id, b.is_fenced) for b in answer.brokers] == [(1, False), (2, True)]


def test_clients_are_told_the_real_controller_where_nobody_forwards(broker: BrokerHarness) -> None:
    """They send their commands to it themselves (ZooKeeper mode)."""
    broker.metadata.forwards = False
    for controller, told in ((Controller(3, 1), 3), (None, -1)):
        broker.metadata.controller = controller
        assert broker.ask(DescribeClusterRequest(), 2).controller_id == told
        assert broker.ask(MetadataRequest(topics=[]), 12).controller_id == told


@pytest.mark.parametrize(
    ("kind", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_other_endpoints_are_not_described_here(broker: BrokerHarness, kind: int, code: ErrorCode) -> None:
    answer = broker.ask(DescribeClusterRequest(endpoint_type=kind), 1)
    assert answer.error_code == code
    assert answer.error_message
    assert answer.endpoint_type == 1


def test_controllers_are_described_on_a_controller_listener(broker: BrokerHarness) -> None:
    broker.metadata.image.controllers = [
        (1, Endpoint("CONTROLLER", "one", 9093)),
        (2, Endpoint("CONTROLLER", "two", 9093)),
        (3, Endpoint("OTHER", "three", 9093)),
    ]
    connection = broker.connect(CONTROLLER_LISTENER)
    answer = broker.ask(DescribeClusterRequest(endpoint_type=2), 1, connection=connection)
    assert [(b.broker_id, b.host, b.port) for b in answer.brokers] == [(1, "one", 9093), (2, "two", 9093)]
    assert (answer.controller_id, answer.endpoint_type) == (1, 2)
    for version in (0, 2):
        answer = broker.ask(DescribeClusterRequest(), version, connection=connection)
        assert answer.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


# DescribeTopicPartitions


def pages(broker: BrokerHarness, limit: int, *names: str) -> list[list[tuple[str, int, list[int]]]]:
    answers: list[list[tuple[str, int, list[int]]]] = []
    topics = [TopicRequest(name=name) for name in names]
    request = DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit)
    while request.cursor or not answers:
        answer = broker.ask(request, 0)
        page = [(t.name, t.error_code, [p.partition_index for p in t.partitions]) for t in answer.topics]
        answers.append(page)
        request.cursor = answer.next_cursor
    return answers


def test_topics_come_by_pages(broker: BrokerHarness) -> None:
    assert pages(broker, 2000) == [[("__consumer_offsets", 0, [0]), ("t", 0, [0, 1])]]
    assert pages(broker, 2) == [[("__consumer_offsets", 0, [0]), ("t", 0, [0])], [("t", 0, [1])]]
    assert pages(broker, 1) == [[("__consumer_offsets", 0, [0])], [("t", 0, [0])], [("t", 0, [1])]]


def test_named_topics_are_sorted_and_unknown_ones_told(broker: BrokerHarness) -> None:
    assert pages(broker, 2000, "t", "no", "?") == [[("?", 17, []), ("no", 3, []), ("t", 0, [0, 1])]]


def test_lists_of_eligible_leaders_are_empty_not_null(broker: BrokerHarness) -> None:
    answer = broker.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")]), 0)
    partition = answer.topics[0].partitions[0]
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])


@pytest.mark.parametrize("cursor", ["", "a", "u", "zz"])
@pytest.mark.parametrize("many", [False, True])
def test_a_cursor_with_a_topic_that_is_not_listed_is_refused(
    broker: BrokerHarness, cursor: str, many: bool
) -> None:
    """The topics behind it would look like the last page."""
    names = ["t", "no", *(f"v{number}" for number in range(500 if many else 0))]
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        cursor=Cursor(topic_name=cursor, partition_index=0),
    )
    answer = broker.ask(request, 0)
    assert [(t.name, t.error_code) for t in answer.topics] == [
        (name, ErrorCode.INVALID_REQUEST) for name in names
    ]
    request.topics = []  # the topic of a cursor among all topics may have gone since
    assert all(not topic.error_code for topic in broker.ask(request, 0).topics)


def test_a_page_that_is_full_ends_before_an_unknown_topic(broker: BrokerHarness) -> None:
    assert pages(broker, 2, "t", "unknown") == [[("t", 0, [0, 1])], [("unknown", 3, [])]]


def test_a_negative_cursor_is_refused(broker: BrokerHarness) -> None:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name="t")], cursor=Cursor(topic_name="t", partition_index=-1)
    )
    assert broker.ask(request, 0).topics[0].error_code == ErrorCode.INVALID_REQUEST
