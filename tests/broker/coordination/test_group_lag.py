"""The lag of groups, as ``/lag`` of the metrics port tells it, on whatever node it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from blumfeld.broker.coordination import group_lag
from blumfeld.broker.serving.counts import NodeMetrics
from blumfeld.spi.completion import Completion
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from blumfeld.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from blumfeld.wire.schema import Message
from tests.broker.batches import batch, produce
from tests.broker.coordination.test_group_coordination import Grouped
from tests.kernel.watching.test_metrics_endpoint import ask, with_endpoint

OTHER = 2
LAG = 'blumfeld_group_lag{group="g",partition="0",topic="t"}'


class Peers:
    """The other node: what it answers to each kind of request, and what it was asked."""

    def __init__(self, *answers: Message | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[Message] = []

    def channel(self, node_id: int, listener: str, purpose: str) -> Peers:
        assert (node_id, purpose) == (OTHER, "lag")
        return self

    def send(
        self, request: Message, timeout_ms: float, version_max: int | None = None
    ) -> Completion[Message]:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if not isinstance(answer, Exception):
            return Completion.of(answer)
        completion: Completion[Message] = Completion()
        completion.fail(answer)
        return completion


def lag_page(broker: Grouped, query: str) -> str:
    text = ""

    async def body(port: int) -> None:
        nonlocal text
        text = await ask(port, f"GET /lag{query} HTTP/1.1\r\nHost: x\r\n\r\n".encode())

    with_endpoint(NodeMetrics(), "ok", body, broker.broker.group_lags)
    return text


def committed(records: int, offset: int) -> Grouped:
    """A broker with records in ``t-0``, and a group ``g`` that has committed an offset there."""
    broker = Grouped()
    for _ in range(records):
        broker.ask(produce(batch()), 9)
    broker.commit(offset)
    return broker


def led_elsewhere(broker: Grouped, topic: str, leader: int = OTHER) -> None:
    epoch = broker.metadata.image.topics[topic].partitions[0].leader_epoch + 1
    broker.change_partition(topic, leader=leader, epoch=epoch)
    broker.runtime.run_turn()


def ends(offset: int, error: int = 0) -> ListOffsetsResponse:
    partition = ListOffsetsPartitionResponse(partition_index=0, offset=offset, error_code=error)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[partition])])


def offsets(offset: int, error: int = 0) -> OffsetFetchResponse:
    partition = OffsetFetchResponsePartitions(partition_index=0, committed_offset=offset)
    topics = [OffsetFetchResponseTopics(name="t", partitions=[partition])]
    return OffsetFetchResponse(
        groups=[OffsetFetchResponseGroup(group_id="g", topics=topics, error_code=error)]
    )


def with_peers(broker: Grouped, *answers: Message | Exception) -> Peers:
    peers = Peers(*answers)
    broker.broker.peers = cast("Any", peers)
    return peers


@pytest.mark.parametrize("query", ["?group=g", ""])
def test_the_lag_is_what_lies_between_the_offset_and_the_high_watermark(query: str) -> None:
    """One group is asked for, or all groups that the node coordinates."""
    text = lag_page(committed(3, 1), query)
    assert text.startswith("HTTP/1.1 200 OK\r\n")
    nobody = 'blumfeld_group_lag_partitions_left_out{group="g"} 0.0', "blumfeld_group_lag_groups_left_out 0.0"
    assert set(text.splitlines()) >= {f"{LAG} 2.0", *nobody}


def test_an_offset_beyond_the_end_is_no_lag() -> None:
    assert 'topic="t"} 0.0' in lag_page(committed(1, 5), "?group=g")


def test_what_is_beyond_the_bound_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_lag, "PARTITIONS_MAX", 0)
    text = lag_page(committed(1, 0), "?group=g")
    assert "partition=" not in text
    assert 'blumfeld_group_lag_partitions_left_out{group="g"} 1.0' in text.splitlines()
    assert "blumfeld_group_lag_groups_left_out 1.0" in lag_page(committed(1, 0), "").splitlines()


def test_the_end_of_a_partition_that_is_led_elsewhere_is_asked_of_its_leader() -> None:
    broker = committed(1, 3)
    led_elsewhere(broker, "t")
    peers = with_peers(broker, ends(10))
    assert f"{LAG} 7.0" in lag_page(broker, "?group=g").splitlines()
    (request,) = peers.asked
    assert isinstance(request, ListOffsetsRequest)
    assert (request.replica_id, request.topics[0].partitions[0].timestamp) == (-1, -1)


@pytest.mark.parametrize(
    "answer", [ends(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER), OSError("refused"), TimeoutError("late")]
)
def test_a_partition_whose_leader_says_no_end_is_left_out(answer: Message | Exception) -> None:
    broker = committed(1, 0)
    led_elsewhere(broker, "t")
    with_peers(broker, answer)
    text = lag_page(broker, "?group=g")
    assert "partition=" not in text
    assert 'blumfeld_group_lag_partitions_left_out{group="g"} 1.0' in text.splitlines()


def test_a_partition_without_a_leader_is_left_out() -> None:
    broker = committed(1, 0)
    led_elsewhere(broker, "t", leader=-1)
    assert 'left_out{group="g"} 1.0' in lag_page(broker, "?group=g")


def test_a_group_that_another_node_coordinates_is_asked_of_it() -> None:
    broker = committed(3, 0)
    led_elsewhere(broker, "__consumer_offsets")
    peers = with_peers(broker, offsets(1))
    assert f"{LAG} 2.0" in lag_page(broker, "?group=g").splitlines()
    (request,) = peers.asked
    assert isinstance(request, OffsetFetchRequest)
    assert [(group.group_id, group.topics) for group in request.groups] == [("g", None)]
    assert "partition=" not in lag_page(broker, ""), "the other node shows it"


@pytest.mark.parametrize(
    ("lose", "said"),
    [
        (lambda broker: led_elsewhere(broker, "__consumer_offsets", leader=-1), "COORDINATOR_NOT_AVAILABLE"),
        (lambda broker: with_peers(broker, offsets(1, ErrorCode.NOT_COORDINATOR)), "NOT_COORDINATOR"),
        (lambda broker: with_peers(broker, OSError("refused")), "refused"),
    ],
)
def test_a_coordinator_that_does_not_answer_is_no_group_without_lag(
    lose: Callable[[Grouped], Any], said: str
) -> None:
    broker = committed(1, 0)
    led_elsewhere(broker, "__consumer_offsets")
    lose(broker)
    text = lag_page(broker, "?group=g")
    assert text.startswith("HTTP/1.1 503 ")
    assert said in text


@pytest.mark.parametrize(
    ("query", "status"), [("?x=1", 400), ("?group=", 400), ("?group=a&group=b", 400), ("?group=else", 404)]
)
def test_other_questions_are_refused(query: str, status: int) -> None:
    assert lag_page(committed(1, 0), query).startswith(f"HTTP/1.1 {status} ")
