"""One contender at one size: three controllers start, one broker catches up, the active controller is killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from blumfeld.client.blocking_connection import BlockingConnection
from blumfeld.spi.internal_topics import CLUSTER_METADATA_TOPIC
from blumfeld.testing.cluster import BROKER, CONTROLLER, LOOPBACK, node_places
from blumfeld.testing.process import NodeError
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)
from blumfeld.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from blumfeld.wire.primitives import DecodeError
from blumfeld_bench.usage import totals
from blumfeld_kit.cluster import Cluster, Node
from campaigns.cluster.contenders import Contender
from campaigns.metadata_scale.directories import (
    PARTITIONS_PER_TOPIC,
    make_directory,
    topic_of,
    write_metadata,
)

CONTROLLERS = (1, 2, 3)
BROKER_ID = 4
TOPIC_RESOURCE = 2
ASK_S = 1.0
POLL_S = 0.01
SETTLE_S = 2.0
"""From the return of a killed controller to the next kill."""


class Point(msgspec.Struct, frozen=True):
    """One contender at one size."""

    contender: str
    form: str
    partitions: int
    metadata_bytes: int
    start_s: float
    """From the start of three controllers to the first decision."""
    failover_s: tuple[float, ...]
    """From kill -9 of the active controller to the next decision, by round."""
    catch_up_s: float
    """From the start of a broker with an empty disk to its answer with the last topic."""
    controller_rss_bytes: int
    """Resident memory of the active controller, after all of this."""
    broker_rss_bytes: int


class NotReachedError(RuntimeError):
    """Something took longer than it may; the message says what."""


def measure(
    contender: Contender, folder: Path, partitions: int, form: str, *, rounds: int, limit_s: float
) -> Point:
    """Measure one point. All processes have ended when this returns.

    :raises NotReachedError: a step took longer than ``limit_s``
    :raises NodeError: a node ended
    """
    metadata = folder / "metadata"
    size = write_metadata(metadata, partitions, form, time.time_ns() // 1_000_000)
    roles = [*[CONTROLLER] * len(CONTROLLERS), BROKER]
    places = node_places([LOOPBACK] * len(roles), roles=roles)
    cluster = Cluster(contender.commands, places, folder)
    for node in cluster.nodes:
        is_voter = node.place.id in CONTROLLERS
        make_directory(node.folder / "data", node.place.id, metadata if is_voter else None)
    voters = [cluster.node(node_id) for node_id in CONTROLLERS]
    broker = cluster.node(BROKER_ID)
    last = (partitions - 1) // PARTITIONS_PER_TOPIC
    try:
        start_s = _timed(lambda: _launch_all(voters), lambda: _decided(voters), limit_s, "the first decision")
        count = partitions - last * PARTITIONS_PER_TOPIC
        catch_up_s = _timed(
            broker.launch, lambda: _shows(broker, topic_of(last), count), limit_s, "the broker's catch-up"
        )
        failover_s = tuple(_failover(voters, limit_s) for _ in range(rounds))
        active = active_voter(voters)
        assert active is not None
        return Point(
            contender.name,
            form,
            partitions,
            size,
            start_s,
            failover_s,
            catch_up_s,
            totals([active.pid]).rss_bytes,
            totals([broker.pid]).rss_bytes,
        )
    finally:
        for node in cluster.nodes:
            if node.is_up:
                node.kill()


def _failover(voters: Sequence[Node], limit_s: float) -> float:
    deadline = time.monotonic() + limit_s
    while (active := active_voter(voters)) is None:
        if time.monotonic() > deadline:
            raise NotReachedError("no controller is active")
        time.sleep(POLL_S)
    rest = [node for node in voters if node is not active]
    took_s = _timed(active.kill, lambda: _decided(rest), limit_s, "the decision of the next controller")
    active.launch()
    active.await_ready(limit_s)
    time.sleep(SETTLE_S)
    return took_s


def _launch_all(nodes: Sequence[Node]) -> None:
    for node in nodes:
        node.launch()


def _timed(act: Callable[[], None], reached: Callable[[], bool], limit_s: float, what: str) -> float:
    began = time.monotonic()
    act()
    while not reached():
        if time.monotonic() - began > limit_s:
            raise NotReachedError(f"{what} took longer than {limit_s:g} s")
        time.sleep(POLL_S)
    return time.monotonic() - began


def _decided(nodes: Sequence[Node]) -> bool:
    """Whether one of these controllers decides: each is asked to set a topic's configuration."""
    value = str(time.time_ns() % 1_000_000 + 1_000_000)
    config = AlterableConfig(name="retention.ms", config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic_of(0), configs=[config])
    for node in nodes:
        try:
            with _connect(node) as connection:
                answer = connection.ask(
                    IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse, 1
                )
        except (OSError, DecodeError):
            continue
        if answer.responses and answer.responses[0].error_code == ErrorCode.NONE:
            return True
    _check_alive(nodes)
    return False


def _shows(broker: Node, topic: str, partitions: int) -> bool:
    try:
        with _connect(broker) as connection:
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
            )
            answer = connection.ask(request, MetadataResponse, 9)
    except (OSError, DecodeError):
        _check_alive([broker])
        return False
    return bool(answer.topics) and len(answer.topics[0].partitions) == partitions


def active_voter(voters: Sequence[Node]) -> Node | None:
    """The controller that leads the quorum, as it says itself."""
    partition = RequestTopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[RequestPartitionData()])
    for node in voters:
        try:
            with _connect(node) as connection:
                answer = connection.ask(DescribeQuorumRequest(topics=[partition]), DescribeQuorumResponse, 1)
        except (OSError, DecodeError):
            continue
        if answer.error_code or not answer.topics or answer.topics[0].partitions[0].error_code:
            continue
        leader_id = answer.topics[0].partitions[0].leader_id
        return next((voter for voter in voters if voter.place.id == leader_id), None)
    return None


def _connect(node: Node) -> BlockingConnection:
    return BlockingConnection(node.place.host, node.place.first_port, "metadata-scale", ASK_S)


def _check_alive(nodes: Sequence[Node]) -> None:
    for node in nodes:
        if not node.is_up:
            raise NodeError(f"node {node.place.id} ended; {node.log_path} ends with:\n{node.printed()}")
