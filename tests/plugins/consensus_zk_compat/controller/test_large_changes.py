"""Changes that take several requests and turns: what comes between them, and what a crash between them leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from blumfeld.spi.zookeeper import Create, Operation, OperationResult
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from blumfeld_consensus_zk_compat.change import Change
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_kit.fakes.znodes import Stamp
from tests.plugins.consensus_zk_compat.controller.cluster import Cluster, Node

SMALL_REQUEST = 8_000


def creation(name: str, partitions: int) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=partitions, replication_factor=2)]
    )


def error_of(response: object) -> int:
    assert isinstance(response, CreateTopicsResponse)
    return response.topics[0].error_code


def after_writes(
    cluster: Cluster, is_counted: Callable[[Operation], bool], count: int, do: Callable[[], None]
) -> None:
    """Call ``do`` behind so many requests that have an operation which counts."""
    change = cluster.zookeeper.tree.change
    left = [count]

    def counted(
        operations: Sequence[Operation], stamp: Stamp
    ) -> tuple[list[Operation], list[OperationResult]]:
        done = change(operations, stamp)
        if any(map(is_counted, operations)):
            left[0] -= 1
            if left[0] == 0:
                do()
        return done

    cluster.zookeeper.tree.change = counted  # type: ignore[method-assign]


def crash(cluster: Cluster, node: Node) -> None:
    """The node's process is gone, and with the next tick its session."""
    cluster.nodes.remove(node)
    node.runtime.crash(power_cut=False)
    session_id = node.session.session_id
    cluster.runtime.call_later(1, lambda: cluster.zookeeper.expire(session_id))


def test_a_large_topic_is_created_whole_before_the_commands_behind_it() -> None:
    cluster = Cluster(request_bytes_max=200_000)
    node = cluster.begin()
    large, small = node.ask(creation("large", 2_000)), node.ask(creation("large", 1))
    assert not large.done
    cluster.advance(2_000)
    assert error_of(large.result()) == ErrorCode.NONE
    assert error_of(small.result()) == ErrorCode.TOPIC_ALREADY_EXISTS
    cluster.check_image()
    assert node.pushes is not None
    assert [len(change.partitions) for change in node.pushes.changes] == [2_000]


def test_a_topic_that_does_not_fit_one_node_is_refused_and_the_controller_goes_on() -> None:
    cluster = Cluster(request_bytes_max=SMALL_REQUEST)
    node = cluster.begin()
    refused = node.ask(creation("large", 2_000))
    cluster.advance(500)
    assert refused.error is not None
    assert "jute.maxbuffer" in str(refused.error)
    assert node.works
    assert cluster.create("t", [1, 2]) == ErrorCode.NONE


@pytest.mark.parametrize("requests", [1, 2, 4])
def test_partitions_that_a_crash_left_without_a_state_get_one(requests: int) -> None:
    cluster = Cluster(nodes=2, request_bytes_max=SMALL_REQUEST)
    node = cluster.begin()

    def is_state(operation: Operation) -> bool:
        return isinstance(operation, Create) and operation.path.endswith("/state")

    after_writes(cluster, is_state, requests, lambda: crash(cluster, node))
    node.ask(creation("t", 300))
    cluster.advance(3_000)
    assert len(cluster.controller.image.topics["t"].partitions) == 300
    assert {cluster.version("t", number) for number in range(300)} == {0}
    cluster.check_image()


@pytest.mark.parametrize("requests", [1, 2, 4])
def test_a_topic_that_a_crash_left_half_deleted_goes(requests: int) -> None:
    cluster = Cluster(nodes=2, request_bytes_max=SMALL_REQUEST)
    node = cluster.begin()
    cluster.ask(creation("t", 300), CreateTopicsResponse, 1_000)

    def is_removal(operation: Operation) -> bool:
        return operation.path.startswith(paths.partitions("t"))

    after_writes(cluster, is_removal, requests, lambda: crash(cluster, node))
    assert cluster.delete("t") == ErrorCode.NONE
    cluster.advance(3_000)
    assert cluster.controller is not node
    for path in (paths.topic("t"), paths.config("topics/t"), paths.deletion("t")):
        assert not cluster.there(path)
    assert cluster.create("t", [1, 2]) == ErrorCode.NONE


@pytest.mark.parametrize("requests", [1, 2])
def test_leaders_that_a_crash_left_on_a_dead_broker_move(requests: int) -> None:
    cluster = Cluster(nodes=2)
    node = cluster.begin()
    cluster.create("t", *[[1, 2]] * 600)
    after_writes(
        cluster,
        lambda operation: operation.path == paths.state("t", 200 * requests),
        1,
        lambda: crash(cluster, node),
    )
    cluster.stop_broker(1)
    cluster.advance(3_000)
    assert cluster.controller is not node
    assert {cluster.state("t", number).leader for number in range(600)} == {2}
    cluster.check_image()


def test_a_command_comes_between_the_parts_of_a_brokers_end() -> None:
    cluster = Cluster()
    node = cluster.begin()
    cluster.create("t", *[[1, 2]] * 1_000)
    order: list[str] = []
    active = node.candidate.term
    assert active is not None
    multis = active.active._multis_of

    def noted(change: Change) -> Sequence[Sequence[Operation]]:
        order.append(",".join(dict.fromkeys(step.topic for step in change.partitions)))
        if len(order) == 2:
            node.ask(creation("u", 1))
        return multis(change)

    active.active._multis_of = noted
    cluster.stop_broker(1)
    cluster.advance(3_000)
    assert order.index("u") < len(order) - 1
    assert order.count("t") > 4
    cluster.check_image()
