"""ZooKeeper mode keeps the contract of a consensus, as a stranger's would; what a tree hasn't is declared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import EntryPoint
from typing import Any, ClassVar

from blumfeld_kit import ConsensusContract
from blumfeld_kit.consensus_contract.kit import Nodes
from blumfeld_kit.simulation.zookeeper.coordination import NAME, Coordination


class TestZooKeeper(ConsensusContract):
    """Three nodes on a simulated ZooKeeper."""

    lacks: ClassVar[Mapping[str, str]] = {
        "forwarding": "a client finds the controller by Metadata, as in Kafka 3.9",
        "quorum": "the quorum is ZooKeeper's",
        "applied_offset": "a tree has no single log",
        "fenced_brokers": "a broker is registered as long as its znode is there",
        "features": "Kafka with a ZooKeeper has no feature to finalize",
        "directories": "a tree has no place for the directories of replicas",
        "broker_epochs": "UpdateMetadata has none; the controller checks those of an ISR",
    }

    def node_sections(self, node_ids: Sequence[int]) -> Callable[[int], Mapping[str, Any]]:
        self._coordination = Coordination(self.seed)
        consensus = {"plugin": NAME, "options": {"connect": "zookeeper:2181"}}
        return lambda _: {"consensus": consensus}

    def plugins(self) -> Sequence[EntryPoint]:
        return [self._coordination.plugin()]

    def take_away(self, nodes: Nodes, node_id: int) -> None:
        self._coordination.servers.stop_all()
