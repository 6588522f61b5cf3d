"""Requests of many elements: the answer in slices is the one that the straight way gives, for every API and array."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, cast

import pytest

from blumfeld.broker.handlers import TABLE
from blumfeld.broker.handlers.broker import (
    api_00_produce,
    api_01_fetch,
    api_03_metadata,
    api_32_describe_configs,
    api_75_describe_topic_partitions,
)
from blumfeld.broker.handlers.broker.api_03_metadata import PARTITIONS_AT_ONCE
from blumfeld.broker.handlers.broker.api_10_find_coordinator import FindCoordinator
from blumfeld.broker.serving import dispatch
from blumfeld.config.values import BROKER_CONFIGS
from blumfeld.spi.cluster import BROKER_RESOURCE
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.steps import CHUNK_ELEMENTS, in_parts
from blumfeld.spi.transport import Connection
from blumfeld.testing.embedded import EmbeddedBroker
from blumfeld.wire.api import API_BY_KEY, response_class
from blumfeld.wire.codec import decode
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.headers import response_body_offset
from blumfeld.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from blumfeld.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from blumfeld.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from blumfeld.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from blumfeld.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from blumfeld.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from blumfeld.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from blumfeld.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from blumfeld.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from blumfeld.wire.schema import Message
from blumfeld_groups_classic import ClassicGroupProtocol
from campaigns.raw_connection import RawConnection
from campaigns.stalls import largest
from tests.broker.harness import BrokerHarness, failing, noting

ELEMENTS = 900
CLOSES = "closed"
STRAIGHT_BYTES = 1 << 30


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """With the topic and the coordinator that the requests name."""
    with EmbeddedBroker() as started:
        with RawConnection(started.bootstrap_servers) as connection:
            topic = CreatableTopic(name=largest.TOPIC, num_partitions=3, replication_factor=1)
            connection.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5, CreateTopicsResponse)
            find = FindCoordinatorRequest(coordinator_keys=[largest.GROUP])
            while connection.ask(find, 4, FindCoordinatorResponse).coordinators[0].error_code:
                pass
        yield started


def advertised() -> list[int]:
    served = {row.key for row in TABLE if "broker" in row.listeners}
    return sorted(served | {11, 12, 13, 14, 24, 25, 26, 55, 65, 66, 68, 69, 80, 81})


def came(broker: EmbeddedBroker, case: largest.Case) -> Message | str:
    with RawConnection(broker.bootstrap_servers) as connection:
        connection.send_frame(case.make())
        try:
            answer = memoryview(connection.receive_frame())
        except Exception:
            return CLOSES
    _, at = response_body_offset(answer, case.key, case.version)
    response = decode(response_class(case.key), answer, case.version, at)
    if isinstance(response, CreateTopicsResponse):
        for topic in response.topics:
            topic.topic_id = bytes(16)  # by chance
    return response


@pytest.mark.parametrize("key", advertised(), ids=lambda key: API_BY_KEY[key].name)
def test_the_answer_in_slices_is_the_straight_one(
    broker: EmbeddedBroker, key: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RawConnection(broker.bootstrap_servers) as connection:
        shown = connection.ask(ApiVersionsRequest(), 0, ApiVersionsResponse).api_keys
    versions = {api.api_key: (api.min_version, api.max_version) for api in shown}
    assert key in versions, "the list above is as long as what is advertised"
    assert set(advertised()) == set(versions)
    for case in largest.cases(key, versions[key], ELEMENTS, 1 << 20):
        in_slices = came(broker, case)
        with monkeypatch.context() as patch:
            patch.setattr(dispatch, "STRAIGHT_BYTES_MAX", STRAIGHT_BYTES)
            straight = came(broker, case)
        assert in_slices == straight, case.title


def leaving(handle: Any = lambda request, context: LeaveGroupResponse()) -> BrokerHarness:
    """A broker that serves LeaveGroup so."""
    harness = BrokerHarness()
    handler = ApiHandler(
        key=13,
        min_version=4,
        max_version=5,
        handle=handle,
        error_response=lambda request, code, message: LeaveGroupResponse(error_code=code),
    )
    harness.broker.register([handler])
    return harness


def large_leave(members: int = 2_000) -> LeaveGroupRequest:
    return LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=f"{n}") for n in range(members)])


def test_the_frame_may_be_overwritten_and_the_answer_comes_in_a_later_turn() -> None:
    seen: list[LeaveGroupRequest] = []

    def handle(request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
        seen.append(request)
        return LeaveGroupResponse()

    harness = leaving(handle)
    frame = harness.frame(large_leave(60_000), 4)
    exchange = harness.begin(frame)
    frame[:] = bytes(len(frame))  # the next turn's requests
    assert not exchange.settled
    harness.runtime.advance(1_000)
    assert exchange.settled
    assert seen == [large_leave(60_000)]


def test_a_large_request_that_can_not_be_read_closes_the_connection() -> None:
    harness = leaving()
    frame = harness.frame(large_leave(60_000), 4)[:-3]
    exchange = harness.begin(bytearray(frame))
    harness.runtime.advance(1_000)
    assert exchange.unanswered
    assert "can't be read" in (harness.connection.closed or "")


def test_an_error_of_the_handler_is_its_response() -> None:
    harness = leaving(failing(RuntimeError("a defect")))
    answer = harness.ask(large_leave(), 4)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert ("error", "handler failed") in [(level, event) for level, event, _ in harness.log.events]


def test_a_defect_in_one_part_leaves_the_answers_of_the_parts_before() -> None:
    """What was done is told. A request that is served in parts is used up by it, so its connection was closed."""
    harness = BrokerHarness()
    served: list[int] = []

    def handle(request: Any, context: RequestContext) -> Any:
        served.append(len(request.transactional_ids))
        if len(served) == 2:
            raise RuntimeError("a defect")
        return DescribeTransactionsResponse(
            transaction_states=[
                TransactionState(transactional_id=one, producer_id=7) for one in request.transactional_ids
            ]
        )

    def failed(request: Any, code: int, _message: str | None) -> Message:
        parts.append(len(request.transactional_ids))
        return DescribeTransactionsResponse(
            transaction_states=[
                TransactionState(transactional_id=one, error_code=code) for one in request.transactional_ids
            ]
        )

    parts: list[int] = []
    serve = in_parts(handle, failed, ("transactional_ids",), ("transaction_states",))
    handler = ApiHandler(key=65, min_version=0, max_version=0, handle=serve, error_response=failed)
    harness.broker.register([handler])
    ids = [f"id{number}" for number in range(20 * CHUNK_ELEMENTS)]
    answer = harness.ask(DescribeTransactionsRequest(transactional_ids=list(ids)), 0)
    assert [one.transactional_id for one in answer.transaction_states] == ids
    codes = [ErrorCode(one.error_code) for one in answer.transaction_states]
    assert codes[:CHUNK_ELEMENTS] == [ErrorCode.NONE] * CHUNK_ELEMENTS
    assert set(codes[CHUNK_ELEMENTS:]) == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert (served, parts) == ([CHUNK_ELEMENTS] * 2, [CHUNK_ELEMENTS] * 19)
    assert [event for level, event, _ in harness.log.events if level == "error"] == ["handler failed"]


PRODUCED = ProduceRequest(
    acks=1,
    timeout_ms=1,
    topic_data=[
        TopicProduceData(name="t", partition_data=[PartitionProduceData(index=n) for n in range(3_000)])
    ],
)
FETCHED = FetchRequest(
    topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=n) for n in range(3_000)])]
)


@pytest.mark.parametrize(
    ("request_", "module", "steps"),
    [(PRODUCED, api_00_produce, "Produce.serve"), (FETCHED, api_01_fetch, "Fetch._many")],
    ids=["Produce", "Fetch"],
)
def test_a_defect_is_told_for_many_partitions_in_steps(
    request_: Message, module: Any, steps: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error for each of 200,000 partitions took 50 to 70 ms in one piece."""

    def size(request: Any, *_: object) -> int:
        (topic,) = request.topic_data if module is api_00_produce else request.topics
        return len(topic.partition_data if module is api_00_produce else topic.partitions)

    monkeypatch.setattr(f"{module.__name__}.{steps}", failing(RuntimeError("a defect")))
    parts = noting(monkeypatch, module, "failed", size)
    (topic,) = BrokerHarness().ask(request_, 12).responses
    answers = topic.partition_responses if module is api_00_produce else topic.partitions
    assert [one.error_code for one in answers] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 3_000
    assert (max(parts), sum(parts)) == (CHUNK_ELEMENTS, 3_000)


def test_work_ends_when_the_connection_has_gone() -> None:
    served: list[LeaveGroupRequest] = []
    harness = leaving(lambda request, context: served.append(request))
    connection = harness.connect()
    exchange = harness.begin(harness.frame(large_leave(100_000), 4), connection)
    harness.broker.connection_handler("broker").closed(cast("Connection", connection), "gone")
    harness.runtime.advance(1_000)
    assert exchange.unanswered
    assert not served, "nobody waits for it"


def test_many_bytes_with_few_elements_go_straight() -> None:
    """A record batch in a produce request; here one long member id after the other."""
    harness = leaving()
    few = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="x" * 30_000)] * 10)
    exchange = harness.begin(harness.frame(few, 4))
    assert exchange.settled, "in this very turn"


def describing(brokers: int) -> DescribeConfigsRequest:
    """A request of few bytes whose answer has many."""
    one = DescribeConfigsResource(resource_type=BROKER_RESOURCE, resource_name="1", configuration_keys=None)
    return DescribeConfigsRequest(resources=[one] * brokers, include_documentation=True)


def test_a_small_request_of_much_work_is_served_in_steps() -> None:
    """600 brokers in 3 kB held up every connection for 3 s."""
    harness = BrokerHarness()
    exchange = harness.begin(harness.frame(describing(120), 4))
    assert not exchange.settled, "others have their turn"
    harness.runtime.advance(10_000)
    answer: DescribeConfigsResponse = harness.response(exchange, describing(1), 4)
    keys = len(BROKER_CONFIGS) + 1  # and blumfeld.build
    assert [len(result.configs) for result in answer.results] == [keys] * 120


def test_an_answer_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each broker takes 8 bytes of the request and 200 kB of memory."""
    monkeypatch.setattr(api_32_describe_configs, "KEYS_MAX", 1_000)
    answer = BrokerHarness().ask(describing(120), 4)
    codes = [result.error_code for result in answer.results]
    assert len(codes) == 120
    assert codes[:2] == [0, 0]
    assert set(codes[6:]) == {ErrorCode.INVALID_REQUEST}
    assert "another request" in answer.results[-1].error_message


@pytest.mark.parametrize(("key_type", "count"), [(0, 200), (1, 200), (1, 400)])
def test_a_few_long_keys_are_served_in_steps(
    key_type: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key is hashed, character by character: 200 of 32 kB held the loop for hundreds of milliseconds."""
    looked_up = noting(monkeypatch, FindCoordinator, "_find", lambda _, key, *__: str(key))
    harness = BrokerHarness(group_protocols=[ClassicGroupProtocol()])
    keys = [f"{number:03}".ljust(32_000, "x") for number in range(count)]
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)
    exchange = harness.begin(harness.frame(request, 4))
    a_turn = [len(looked_up)]
    while not exchange.settled:
        harness.runtime.loop._one_turn()
        a_turn.append(len(looked_up))
    assert max(after - before for before, after in pairwise(a_turn)) == 1
    answer = harness.response(exchange, request, 4)
    assert [one.key for one in answer.coordinators] == keys == looked_up


@pytest.mark.parametrize("topics", [None, [MetadataRequestTopic(name="b")]], ids=["all", "named"])
def test_metadata_of_many_partitions_is_served_in_steps(
    topics: list[MetadataRequestTopic] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred clients that asked for 2,000 partitions again and again kept a producer waiting for 9 s."""
    harness = BrokerHarness()
    for name in ("b", "a"):
        harness.create_topic(name, partitions=PARTITIONS_AT_ONCE + 1)
    request = MetadataRequest(topics=topics)
    exchange = harness.begin(harness.frame(request, 12))
    assert not exchange.settled, "others have their turn"
    harness.runtime.advance(10_000)
    in_steps = harness.response(exchange, request, 12)
    monkeypatch.setattr(api_03_metadata, "PARTITIONS_AT_ONCE", 1 << 30)
    assert in_steps == harness.ask(request, 12)
    assert [topic.name for topic in in_steps.topics] == (["a", "b"] if topics is None else ["b"])
    assert len(in_steps.topics[0].partitions) == PARTITIONS_AT_ONCE + 1


def test_an_error_for_many_elements_is_answered_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = noting(
        monkeypatch, api_75_describe_topic_partitions, "failed", lambda request, *_: len(request.topics)
    )
    names = [f"t{number}" for number in range(5_000)]
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        cursor=Cursor(topic_name="t", partition_index=-1),
    )
    answer = BrokerHarness().ask(request, 0)
    assert [topic.name for topic in answer.topics] == names
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.INVALID_REQUEST}
    assert max(parts) <= CHUNK_ELEMENTS


@pytest.mark.parametrize("asks_by_id", [False, True], ids=["known", "too early"])
def test_metadata_refuses_many_topics_in_steps(asks_by_id: bool) -> None:
    """Every error that the steps raise for a whole request is told for each element."""
    topics = [MetadataRequestTopic(name=None if asks_by_id else f"t{n}") for n in range(2_000)]
    answer = BrokerHarness().ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 11)
    code = ErrorCode.INVALID_REQUEST if asks_by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [topic.error_code for topic in answer.topics] == [code] * 2_000
