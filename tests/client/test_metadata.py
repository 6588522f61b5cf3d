"""What a client knows of a cluster, and when it knows it no more."""

from __future__ import annotations

import pytest

from blumfeld.client.errors import RefusedError, error_name
from blumfeld.client.metadata import NO_ID, Broker, ClusterView
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


def answer(
    *partitions: tuple[int, int, int],
    topic_id: bytes = b"i" * 16,
    code: int = 0,
    nodes: tuple[int, ...] = (1, 2),
) -> MetadataResponse:
    """:param partitions: index, leader, leader epoch"""
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node, host=f"h{node}", port=9090 + node) for node in nodes],
        topics=[
            MetadataResponseTopic(
                name="t",
                topic_id=topic_id,
                error_code=code,
                partitions=[
                    MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=epoch)
                    for index, leader, epoch in partitions
                ],
            )
        ],
    )


def test_leaders_are_brokers_by_partition() -> None:
    view = ClusterView()
    view.take(answer((1, 2, 0), (0, 1, 0)))
    assert view.leaders("t") == [Broker(1, "h1", 9091), Broker(2, "h2", 9092)]
    assert view.leader("t", 1) == Broker(2, "h2", 9092)
    assert set(view.brokers) == {1, 2}


@pytest.mark.parametrize(
    ("response", "partition", "name"),
    [
        (answer(code=ErrorCode.TOPIC_AUTHORIZATION_FAILED), 0, "topic t: TOPIC_AUTHORIZATION_FAILED"),
        (answer((0, 1, 0)), 1, "t-1: UNKNOWN_TOPIC_OR_PARTITION"),
        (answer((0, -1, 0)), 0, "t-0: LEADER_NOT_AVAILABLE"),
        (answer((0, 2, 0), nodes=(1,)), 0, "t-0: LEADER_NOT_AVAILABLE"),
        (answer(code=3333), 0, "topic t: error 3333"),
    ],
)
def test_a_partition_without_a_leader_says_why(response: MetadataResponse, partition: int, name: str) -> None:
    view = ClusterView()
    view.take(response)
    with pytest.raises(RefusedError, match=name):
        view.leader("t", partition)


def test_a_topic_that_nobody_asked_for_is_unknown() -> None:
    view = ClusterView()
    with pytest.raises(RefusedError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        view.leader("t", 0)


def test_an_older_leader_does_not_come_back() -> None:
    """KIP-320: the broker that is asked may not know of the change yet."""
    view = ClusterView()
    view.take(answer((0, 2, 5)))
    view.take(answer((0, 1, 4)))
    assert view.leader("t", 0).node == 2
    view.take(answer((0, 1, 6)))
    assert view.leader("t", 0).node == 1


def test_without_epochs_or_with_another_topic_the_newest_answer_counts() -> None:
    view = ClusterView()
    view.take(answer((0, 2, 5)))
    view.take(answer((0, 1, -1)))  # versions below 7 say no epoch
    assert view.leader("t", 0).node == 1
    view.take(answer((0, 2, 5)))
    view.take(answer((0, 1, 0), topic_id=b"x" * 16))  # deleted and made anew
    assert view.leader("t", 0).node == 1
    view.take(answer((0, 2, 5), topic_id=NO_ID))
    view.take(answer((0, 1, 4), topic_id=NO_ID))  # below version 10: it may be another topic
    assert view.leader("t", 0).node == 1


def test_a_request_creates_no_topic() -> None:
    request = ClusterView.request(["a", "b"])
    assert [topic.name for topic in request.topics or ()] == ["a", "b"]
    assert not request.allow_auto_topic_creation
    assert ClusterView.request(None).topics is None


def test_codes_have_kafkas_names() -> None:
    assert (error_name(6), error_name(-1), error_name(12345)) == (
        "NOT_LEADER_OR_FOLLOWER",
        "UNKNOWN_SERVER_ERROR",
        "error 12345",
    )
