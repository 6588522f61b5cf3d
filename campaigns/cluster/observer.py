"""The state of a cluster as its nodes see it: leaders, replicas in sync, the controller."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Collection, Sequence
from typing import Self

import attrs

from blumfeld.client.blocking_connection import BlockingConnection
from blumfeld.client.errors import RefusedError, error_name
from blumfeld.client.metadata import ClusterView
from blumfeld.spi.internal_topics import CLUSTER_METADATA_TOPIC
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from blumfeld.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from blumfeld.wire.messages.metadata import MetadataResponse
from blumfeld.wire.primitives import DecodeError
from blumfeld_kit.cluster import Cluster, Node
from campaigns.cluster.faults import Leadership
from campaigns.cluster.tree import Tree

METADATA_VERSION = 8
DESCRIBE_QUORUM_VERSION = 1
"""The first one that says when each voter had caught up."""
NOBODY = -1
POLL_S = 0.1
WATCH_POLL_S = 0.01
"""Pause between two questions of a :class:`LeaderWatch`: the resolution of its figure."""
ELECT_S = 10.0
ELECT_LEADERS_VERSION = 1
FINE = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)


@attrs.frozen
class TopicState:
    """The topic of the load as one node sees it."""

    brokers: frozenset[int]
    """Brokers that are alive."""
    leaders: tuple[int, ...]
    in_sync: tuple[frozenset[int], ...]

    def is_whole(self, brokers: int) -> bool:
        """Whether every broker is alive and in sync for every partition, and each partition has a leader."""
        return (
            len(self.brokers) == brokers
            and NOBODY not in self.leaders
            and bool(self.in_sync)
            and all(len(replicas) == brokers for replicas in self.in_sync)
        )


class Observer:
    """Asks the nodes of a cluster. A node that does not answer in time is passed over."""

    def __init__(self, cluster: Cluster, topic: str, tree: Tree | None = None) -> None:
        """:param tree: of a cluster that has no quorum: its metadata is in ZooKeeper"""
        self._cluster = cluster
        self._topic = topic
        self._tree = tree

    def leadership(self) -> Leadership:
        """Return the present leaders, as the first node that answers sees them."""
        brokers = self._cluster.brokers
        seen = next((state for state in map(self.topic_of, brokers) if state is not None), None)
        return Leadership(
            controller=self.controller(),
            leaders=seen.leaders if seen is not None else (NOBODY,),
            nodes=tuple(node.place.id for node in self._cluster.nodes),
            brokers=tuple(node.place.id for node in brokers),
        )

    def controller(self) -> int:
        """Return the active controller as the first node that knows one says (DescribeQuorum), or :data:`NOBODY`.

        A broker's Metadata does not tell: with KRaft it names a broker that takes requests for the controller.
        With ZooKeeper it is the broker in ``/controller``.
        """
        if self._tree is not None:
            at = self._tree.controller()
            return NOBODY if at is None else at
        quorum = self._quorum()
        return NOBODY if quorum is None else quorum.leader_id

    def topic_of(self, node: Node) -> TopicState | None:
        """Return the state of the topic as this node sees it; None if it does not answer, or has no such topic."""
        try:
            with node.connect() as connection:
                return ask_topic(connection, self._topic)
        except (OSError, DecodeError, RefusedError):
            return None

    def elect_preferred(self, partitions: int) -> str:
        """Give each partition back to its preferred leader (KIP-460); return why that failed, or an empty string."""
        topic = TopicPartitions(topic=self._topic, partitions=list(range(partitions)))
        request = ElectLeadersRequest(topic_partitions=[topic], timeout_ms=int(ELECT_S * 1000))
        node = self._command_taker()
        if node is None:
            return "there is no controller"
        try:
            with node.connect(ELECT_S) as connection:
                answer = connection.ask(request, ElectLeadersResponse, ELECT_LEADERS_VERSION)
        except (OSError, DecodeError) as error:
            return f"node {node.place.id}: {error or type(error).__name__}"
        results = (each for topic in answer.replica_election_results for each in topic.partition_result)
        codes = (answer.error_code, *(each.error_code for each in results))
        return ", ".join(sorted({error_name(code) for code in codes if code not in FINE}))

    def _command_taker(self) -> Node | None:
        """Return a broker that takes commands. With ZooKeeper that is the controller alone; no broker forwards."""
        if self._tree is None:
            return self._cluster.brokers[0]
        controller = self.controller()
        return next((node for node in self._cluster.brokers if node.place.id == controller), None)

    def await_whole(self, timeout_s: float, since: float | None = None) -> bool:
        """Wait until every broker says that all replicas are in sync; return whether they did in time.

        :param since: wait also until each voter of the quorum has caught up after this instant (time.time). A node
            that is only a controller has no replica of the topic, so that is the only sign that it is back.
        """
        deadline = time.monotonic() + timeout_s
        brokers = self._cluster.brokers
        while True:
            states = (self.topic_of(node) for node in brokers)
            if all(state is not None and state.is_whole(len(brokers)) for state in states) and (
                since is None or not self._behind(since)
            ):
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)

    def await_led(self, timeout_s: float) -> list[str]:
        """Wait until each partition of all topics has a leader; return those that have none in time."""
        deadline = time.monotonic() + timeout_s
        while (offline := self._offline()) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return offline

    def _offline(self) -> list[str]:
        """Return the partitions without a leader, as the first broker that answers sees them."""
        for node in self._cluster.brokers:
            with contextlib.suppress(OSError, DecodeError), node.connect() as connection:
                answer = connection.ask(ClusterView.request(None), MetadataResponse, METADATA_VERSION)
                return [
                    f"{topic.name}-{each.partition_index}"
                    for topic in answer.topics
                    for each in topic.partitions
                    if each.leader_id == NOBODY
                ]
        return ["no broker answers"]

    def describe(self, since: float | None = None) -> str:
        """Return each broker's view in a line, for a report of what did not heal.

        :param since: name also the voters that have not caught up after this instant (time.time)
        """
        lines = []
        for node in self._cluster.brokers:
            state = self.topic_of(node)
            says = (
                "no answer"
                if state is None
                else f"brokers {sorted(state.brokers)}, leaders {list(state.leaders)}, "
                f"in sync {[sorted(replicas) for replicas in state.in_sync]}"
            )
            lines.append(f"node {node.place.id} ({'up' if node.is_up else 'down'}): {says}")
        voters = f"voters behind: {self._behind(since) or 'none'}; " if since is not None else ""
        return f"controller {self.controller()}; {voters}" + "; ".join(lines)

    def _behind(self, since: float) -> str:
        """Return the voters that have not caught up after an instant; empty if all have. With ZooKeeper: the brokers
        that aren't registered in the tree.
        """
        if self._tree is not None:
            absent = self._tree.absent(node.place.id for node in self._cluster.brokers)
            return "unknown" if absent is None else ", ".join(map(str, absent))
        quorum = self._quorum()
        return "unknown" if quorum is None else ", ".join(map(str, voters_behind(quorum, since)))

    def _quorum(self) -> ResponsePartitionData | None:
        """Return the quorum as its leader describes it to the first broker that reaches it; None if none does."""
        return next(filter(None, map(self._quorum_of, self._cluster.brokers)), None)

    def _quorum_of(self, node: Node) -> ResponsePartitionData | None:
        topic = RequestTopicData(
            topic_name=CLUSTER_METADATA_TOPIC, partitions=[RequestPartitionData(partition_index=0)]
        )
        with contextlib.suppress(OSError, DecodeError), node.connect() as connection:
            answer = connection.ask(
                DescribeQuorumRequest(topics=[topic]), DescribeQuorumResponse, DESCRIBE_QUORUM_VERSION
            )
            if not answer.error_code and answer.topics:
                quorum = answer.topics[0].partitions[0]
                if not quorum.error_code and quorum.leader_id != NOBODY:
                    return quorum
        return None


class LeaderWatch:
    """Notes when the metadata of each broker names leaders that live. A thread asks each broker, from before the fault
    on; it ends with the answer that it waits for, or with the context.
    """

    def __init__(self, nodes: Sequence[Node], topic: str, lost: Collection[int]) -> None:
        """:param nodes: the brokers to ask
        :param lost: the nodes that the fault hits"""
        self._topic = topic
        self._lost = frozenset(lost)
        self._named_at: list[float | None] = [None] * len(nodes)
        self._done = threading.Event()
        self._threads = [
            threading.Thread(target=self._watch, args=each, name="leader-watch", daemon=True)
            for each in enumerate(nodes)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()

    def named_s(self, begin: float) -> tuple[float | None, ...]:
        """Return for each broker the time from ``begin`` (time.monotonic) to its first answer in which every partition
        has a leader that was not hit; None for a broker that gave no such answer."""
        return tuple(None if at is None else at - begin for at in self._named_at)

    def _watch(self, index: int, node: Node) -> None:
        while not self._done.is_set() and self._named_at[index] is None:
            with contextlib.suppress(OSError, DecodeError, RefusedError), node.connect() as connection:
                self._ask(index, connection)
            self._done.wait(WATCH_POLL_S)

    def _ask(self, index: int, connection: BlockingConnection) -> None:
        """Ask until the answer is the one that is waited for."""
        while not self._done.is_set():
            leaders = ask_topic(connection, self._topic).leaders
            if not self._lost.intersection(leaders) and NOBODY not in leaders:
                self._named_at[index] = time.monotonic()
                return
            self._done.wait(WATCH_POLL_S)


def ask_topic(connection: BlockingConnection, topic: str) -> TopicState:
    """Return the state of a topic as the broker at the other end sees it.

    :raises RefusedError: it has no such topic
    :raises OSError: there is no answer; DecodeError: it is none of Kafka's
    """
    view = ClusterView()
    view.take(connection.ask(ClusterView.request([topic]), MetadataResponse, METADATA_VERSION))
    partitions = sorted(view.topic(topic).partitions, key=lambda each: each.partition_index)
    return TopicState(
        frozenset(view.brokers),
        tuple(each.leader_id for each in partitions),
        tuple(frozenset(each.isr_nodes) for each in partitions),
    )


def voters_behind(quorum: ResponsePartitionData, since: float) -> list[int]:
    """Return the voters that have not had the whole log of the quorum's leader after an instant (time.time).

    The offsets alone don't tell: a leader remembers those of a voter that is gone. All nodes run on this machine, so
    the leader's clock is ours.
    """
    return [
        voter.replica_id for voter in quorum.current_voters if voter.last_caught_up_timestamp <= since * 1000
    ]
