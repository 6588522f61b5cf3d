"""The state of a cluster, made of answers."""

from __future__ import annotations

import io

from rich.console import Console

from blumfeld.cli.cluster.state import NodeState
from blumfeld.cli.cluster.table import print_view
from blumfeld.cli.cluster.view import NAMED_MAX, ClusterView, Place, cluster_view, lag_of, quorum_view
from blumfeld.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from blumfeld.wire.messages.describe_quorum import ReplicaState, ResponsePartitionData
from blumfeld.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

BOTH = ("broker", "controller")
NODES = [
    NodeState(
        id=node_id,
        roles=BOTH if node_id < 3 else ("broker",),
        host="h",
        port=9000 + node_id,
        manifest="",
        log="",
    )
    for node_id in (1, 2, 3)
]
QUORUM = ResponsePartitionData(
    leader_id=2,
    leader_epoch=7,
    high_watermark=95,
    current_voters=[
        ReplicaState(replica_id=2, log_end_offset=100, last_caught_up_timestamp=9_000),
        ReplicaState(replica_id=1, log_end_offset=95, last_caught_up_timestamp=8_500),
    ],
    observers=[ReplicaState(replica_id=3, log_end_offset=-1)],
)


def partition(index: int, leader: int, replicas: list[int], isr: list[int]) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        partition_index=index, leader_id=leader, replica_nodes=replicas, isr_nodes=isr
    )


METADATA = MetadataResponse(
    cluster_id="abc",
    topics=[
        MetadataResponseTopic(
            name="t",
            partitions=[
                partition(1, -1, [1], []),
                partition(0, 1, [1, 2, 3], [1, 2, 3]),
                partition(2, 1, [1, 2, 3], [1, 3]),
            ],
        ),
        MetadataResponseTopic(name="a", partitions=[partition(0, 2, [2, 3], [2])]),
    ],
)


def view() -> ClusterView:
    processes = {1: "running", 2: "running", 3: "paused"}
    return cluster_view(NODES, processes, [2], quorum_view(QUORUM, 9_000), METADATA, {1: 0, 2: 40}, [(1, 2)])


def test_partitions_that_lack_something_are_named() -> None:
    summary = view()
    assert (summary.topics, summary.partitions, summary.without_leader, summary.under_replicated) == (
        2,
        4,
        1,
        3,
    )
    assert [(entry.topic, entry.partition, entry.leader, entry.isr) for entry in summary.named] == [
        ("a", 0, 2, [2]),
        ("t", 1, None, []),
        ("t", 2, 1, [1, 3]),
    ]


def test_no_more_are_named_than_a_person_reads() -> None:
    partitions = [partition(nth, 1, [1, 2], [1]) for nth in range(NAMED_MAX + 5)]
    metadata = MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=partitions)])
    summary = cluster_view(NODES, dict.fromkeys((1, 2, 3), "running"), [1], None, metadata, {})
    assert (summary.under_replicated, len(summary.named)) == (NAMED_MAX + 5, NAMED_MAX)
    assert f"(the first {NAMED_MAX})" in printed(summary)


def test_without_an_answer_nothing_is_counted() -> None:
    summary = cluster_view(NODES, dict.fromkeys((1, 2, 3), "dead"), [], None, None, {})
    assert summary.partitions is None
    text = printed(summary)
    assert "cluster unknown" in text
    assert "quorum: no leader answers" in text
    assert "partitions: no node answered" in text


def test_without_a_leader_each_voter_says_what_it_knows() -> None:
    places = {1: Place(7, 1), 2: Place(6, 3), 3: Place(8, -1)}
    summary = cluster_view(NODES, dict.fromkeys((1, 2, 3), "running"), [1, 2, 3], None, None, {}, (), places)
    lines = [" ".join(line.split()) for line in printed(summary).splitlines()]
    assert "1 broker, controller h:9001 running leads, epoch 7 0 0 0" in lines
    assert "2 broker, controller h:9002 running follows 3, epoch 6 0 0 0" in lines
    assert "3 broker h:9003 running no leader, epoch 8 0 0 0" in lines


def test_the_process_of_a_node_elsewhere_is_not_known_but_its_answer_is() -> None:
    nodes = [
        *NODES[:2],
        NodeState(id=3, roles=("broker",), host="", port=0, manifest="", log="", is_ours=False),
    ]
    summary = cluster_view(nodes, dict.fromkeys((1, 2, 3), "unknown"), [1], None, None, {})
    lines = [" ".join(line.split()) for line in printed(summary).splitlines()]
    assert "1 broker, controller h:9001 answers 0 0 0" in lines
    assert "2 broker, controller h:9002 no answer 0 0 0" in lines
    assert "3 broker unknown no answer 0 0 0" in lines


def test_lag_of_the_replicas_of_a_broker() -> None:
    partitions = [
        DescribeLogDirsPartition(partition_index=0, offset_lag=3),
        DescribeLogDirsPartition(partition_index=1, offset_lag=4),
        DescribeLogDirsPartition(partition_index=1, offset_lag=100, is_future_key=True),
    ]
    topics = [DescribeLogDirsTopic(name="t", partitions=partitions)]
    assert lag_of(DescribeLogDirsResponse(results=[DescribeLogDirsResult(topics=topics)])) == 7


def printed(shown_view: ClusterView) -> str:
    out = io.StringIO()
    print_view(shown_view, Console(file=out, width=120))
    return out.getvalue()


def test_the_tables() -> None:
    lines = [" ".join(line.split()) for line in printed(view()).splitlines()]
    assert lines[0] == "cluster abc"
    assert "quorum: leader 2, epoch 7, committed up to 95" in lines
    assert "1 voter 95 5 500 ms ago" in lines
    assert "2 active controller 100 0" in lines
    assert "3 observer -1 101" in lines
    assert "1 broker, controller h:9001 running, no answer 2 3 1 0" in lines
    assert "2 broker, controller h:9002 running 1 3 1 40" in lines
    assert "3 broker h:9003 paused 0 3 1" in lines
    assert "2 topics, 4 partitions: 1 without a leader, 3 under-replicated" in lines
    assert "t 1 none 1" in lines
    assert lines[-1] == "cut: 1 → 2"
