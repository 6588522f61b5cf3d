"""Harm to nodes, and its end: their processes, the network between them, their disks, their sessions."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from blumfeld_kit.cluster import Cluster, Node
from campaigns.clients.load.producers import LIBRDKAFKA
from campaigns.cluster.disks import Disks
from campaigns.cluster.namespaces import LOAD, Namespaces
from campaigns.cluster.sessions import LOST_S, NoSessionError, SessionDoor
from campaigns.door import Way
from campaigns.zookeeper_server import ZOOKEEPER

HALF_MADE = "half-made-"
PARTITIONS = 6


class Harm:
    """Hurts the nodes of a cluster, and ends it."""

    def __init__(
        self,
        cluster: Cluster,
        wires: Namespaces | None,
        disks: Disks | None = None,
        doors: Mapping[int, SessionDoor] | None = None,
        servers: int = 0,
    ) -> None:
        """:param doors: between each node and its ZooKeeper
        :param servers: ZooKeeper servers that have a place in the network, too"""
        self._cluster = cluster
        self._doors = doors or {}
        self._servers = servers
        self._wires = wires
        self._disks = disks
        self._begun = 0
        """Topics that were begun."""
        self._silences: Counter[tuple[int, int]] = Counter()
        """Number of faults that drop the packets from one end to another: they pass again when the last one is over."""

    def begin(self, action: str, nodes: Sequence[Node]) -> None:
        """Do it to all nodes at once. ``action`` is one of :data:`campaigns.cluster.faults.ACTIONS`.

        :raises ClusterError: the network can't be changed
        :raises NoSessionError: a session could not be ended
        """
        for node in nodes:
            if action == "expire":
                self._doors[node.place.id].close_session()
            elif action == "lose":
                self._lose(node)
            elif action == "kill":
                node.kill()
            elif action == "pause":
                node.pause()
            elif action == "stop":
                node.terminate()
            elif action == "fill":
                assert self._disks is not None
                self._disks.fill(node.place.id)
        for pair in self._silenced(action, nodes):
            assert self._wires is not None
            self._silences[pair] += 1
            if self._silences[pair] == 1:
                self._wires.drop(*pair)

    def end(self, action: str, nodes: Sequence[Node]) -> list[str]:
        """Undo it, without waiting for the nodes to answer. Return what a report should say of it.

        :raises ClusterError: the network can't be changed
        """
        notes = []
        for node in nodes:
            if action == "kill":
                node.launch()
            elif action == "pause":
                node.resume()
            elif action == "stop":
                if not node.await_end():
                    notes.append(f"node {node.place.id} did not end within its time and was killed")
                node.launch()
            elif action == "fill":
                assert self._disks is not None
                self._disks.free(node.place.id)
            elif action == "lose":
                self._doors[node.place.id].set(Way.OPEN)
        for pair in self._silenced(action, nodes):
            assert self._wires is not None
            self._silences[pair] -= 1
            if not self._silences[pair]:
                self._wires.pass_again(*pair)
        return notes

    def _lose(self, node: Node) -> None:
        """Have the controller begin a topic, and lose the answer of its first multi."""
        door = self._doors[node.place.id]
        door.lose_next_multi()
        self._begun += 1
        begin_topic(self._cluster.addresses, f"{HALF_MADE}{self._begun}", len(self._cluster.brokers))
        if not door.lost.wait(LOST_S):
            raise NoSessionError(f"node {node.place.id} sent no multi for {LOST_S:.0f} s")

    def _silenced(self, action: str, nodes: Sequence[Node]) -> Iterator[tuple[int, int]]:
        """Yield (sender, receiver) of the packets that the action takes away."""
        ids = [self._end_of(node) for node in nodes]
        ends = range(LOAD, len(self._cluster.nodes) + self._servers + 1)
        if action == "part":
            yield from ((a, b) for a in ids for b in ids if a != b)
        if action in ("deafen", "cut"):
            yield from ((other, node) for node in ids for other in ends if other != node)
        if action in ("mute", "cut"):
            yield from ((node, other) for node in ids for other in ends if other != node)

    def _end_of(self, node: Node) -> int:
        """Return the node's end of the network. The ZooKeeper servers, whose ids are no greater than 0, come last."""
        number = node.place.id
        return number if number > ZOOKEEPER else len(self._cluster.nodes) + 1 - number


def begin_topic(bootstrap: str, name: str, replicas: int) -> None:
    """Ask for a topic, and don't wait for the answer: it may exist or not when the fault is over."""

    def ask() -> None:
        admin = AdminClient({**LIBRDKAFKA, "bootstrap.servers": bootstrap})
        with contextlib.suppress(KafkaException, TimeoutError):
            admin.create_topics([NewTopic(name, PARTITIONS, replicas)])[name].result(LOST_S)

    threading.Thread(target=ask, name=name, daemon=True).start()
