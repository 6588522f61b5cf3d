"""Harm to nodes, and its end: their processes, the network between them, their disks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from blumfeld_kit.cluster import Cluster, Node
from campaigns.cluster.disks import Disks
from campaigns.cluster.namespaces import LOAD, Namespaces


class Harm:
    """Hurts the nodes of a cluster, and ends it."""

    def __init__(self, cluster: Cluster, wires: Namespaces | None, disks: Disks | None = None) -> None:
        self._cluster = cluster
        self._wires = wires
        self._disks = disks
        self._silences: Counter[tuple[int, int]] = Counter()
        """Number of faults that drop the packets from one end to another: they pass again when the last one is over."""

    def begin(self, action: str, nodes: Sequence[Node]) -> None:
        """Do it to all nodes at once. ``action`` is one of :data:`campaigns.cluster.faults.ACTIONS`.

        :raises ClusterError: the network can't be changed
        """
        for node in nodes:
            if action == "kill":
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
        for pair in self._silenced(action, nodes):
            assert self._wires is not None
            self._silences[pair] -= 1
            if not self._silences[pair]:
                self._wires.pass_again(*pair)
        return notes

    def _silenced(self, action: str, nodes: Sequence[Node]) -> Iterator[tuple[int, int]]:
        """Yield (sender, receiver) of the packets that the action takes away."""
        ids = [node.place.id for node in nodes]
        ends = [LOAD, *(node.place.id for node in self._cluster.nodes)]
        if action == "part":
            yield from ((a, b) for a in ids for b in ids if a != b)
        if action in ("deafen", "cut"):
            yield from ((other, node) for node in ids for other in ends if other != node)
        if action in ("mute", "cut"):
            yield from ((node, other) for node in ids for other in ends if other != node)
