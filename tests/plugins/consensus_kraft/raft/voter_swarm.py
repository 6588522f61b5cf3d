"""Random histories of a quorum whose voters come, go and lose their disks (KIP-853)."""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.spi.cluster import Endpoint
from blumfeld_consensus_kraft.raft import effects
from blumfeld_consensus_kraft.raft.messages import SnapshotId
from blumfeld_consensus_kraft.raft.raft import Raft
from blumfeld_consensus_kraft.raft.settings import Settings
from blumfeld_consensus_kraft.raft.voter_changes import Refusal, refused, with_added, with_removed
from blumfeld_consensus_kraft.raft.voters import ReplicaKey, Voter, VoterChange, VoterHistory, VoterSet
from tests.plugins.consensus_kraft.raft.swarm import Swarm
from tests.plugins.consensus_kraft.raft.world import FIRST_BOOTSTRAP_ID, Node, World

LISTENER = "CONTROLLER"


def voter_of(key: ReplicaKey) -> Voter:
    return Voter(key, (Endpoint(LISTENER, f"node-{key.id}", 9093),), 0, 1)


class VoterNode(Node):
    """A machine whose disk has an id; a voter set is a record of its log."""

    world: VoterWorld

    def made(self) -> Raft:
        world = self.world
        changes = [VoterChange(-1, world.first, 1)] if self.key in world.first else []
        if self.log.start_offset:
            changes = [world.in_snapshot(self.log.start_offset)]
        for offset, entry in enumerate(self.log.entries, start=self.log.start_offset):
            if isinstance(entry.value, VoterSet):
                changes.append(VoterChange(offset, entry.value, 1))
        return Raft(
            self.key,
            VoterHistory(VoterSet(), changes),
            self.log,
            world.settings,
            self.stored,
            lambda below: world.draw(self) * below,
            bootstrap=[FIRST_BOOTSTRAP_ID + 1 - voter_id for voter_id in world.nodes if voter_id != self.id],
        )

    def install(self, snapshot: SnapshotId) -> None:
        super().install(snapshot)
        change = self.world.in_snapshot(snapshot.end_offset)
        assert self.raft is not None
        self.raft.history.truncate(0)
        self._counts(snapshot.end_offset - 1, change.voters)

    def change(self, voters: VoterSet) -> None:
        """As the leader: append a set, which counts from then on."""
        if self.leading_epoch < 0 or self.raft is None or self.raft.epoch != self.leading_epoch:
            return
        offset = self.log.end_offset
        self.append([voters])
        self._counts(offset, voters)

    def _execute(self, effect: effects.Effect, reply: Callable[[object], None]) -> None:
        offset = self.log.end_offset
        super()._execute(effect, reply)
        if isinstance(effect, effects.Append):
            for at, entry in enumerate(effect.records, start=offset):
                if isinstance(entry.value, VoterSet):
                    self._counts(at, entry.value)
        elif isinstance(effect, effects.Lead) and self.raft is not None and not self.raft.history.is_in_log:
            self.change(self.raft.voters)

    def _counts(self, offset: int, voters: VoterSet) -> None:
        self.do(lambda raft: raft.voters_changed(offset, voters, 1, self.world.now_ms))


class VoterWorld(World):
    """Some nodes begin as voters, the others as observers."""

    nodes: dict[int, VoterNode]  # type: ignore[assignment]

    node_class = VoterNode

    def __init__(self, seed: int, nodes: int, voters: int) -> None:
        super().__init__(seed, nodes, Settings(), directories=True)
        self.first = VoterSet(voter_of(self.nodes[node_id].key) for node_id in range(1, voters + 1))

    def in_snapshot(self, end_offset: int) -> VoterChange:
        """The set that a snapshot of committed records has."""
        change = VoterChange(-1, self.first, 1)
        for offset, entry in enumerate(self.committed[:end_offset]):
            if isinstance(entry.value, VoterSet):
                change = VoterChange(offset, entry.value, 1)
        return change

    def sets(self) -> list[VoterSet]:
        """Each set that some log ends with, also of a machine that is down, and the committed one."""
        voter_sets = [self.in_snapshot(len(self.committed)).voters]
        for node in self.nodes.values():
            voter_sets += [entry.value for entry in node.log.entries if isinstance(entry.value, VoterSet)][
                -1:
            ]
        return voter_sets

    def can_work(self, voters: VoterSet, without: int = 0) -> bool:
        """Whether a majority of a set still has the disks that it was made with."""
        there = [node for node in self.nodes.values() if node.key in voters and node.id != without]
        return len(there) >= voters.majority


class VoterSwarm(Swarm):
    """The faults of a swarm, and voters that come and go."""

    world: VoterWorld

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.world = VoterWorld(seed, nodes=4 + seed % 2, voters=1 + seed % 3)
        self._random = self.world.random
        self.changed = self.lost = 0
        self._faults = [fault for fault in self._faults if fault.__name__ != "_lose_disk"]
        self._faults += [self._add, self._add, self._remove, self._lose_disk]

    def _leader(self) -> VoterNode | None:
        leader = self.world.leader
        return leader if isinstance(leader, VoterNode) and not leader.stalled else None

    def _add(self, node: Node) -> None:
        assert isinstance(node, VoterNode)
        leader = self._leader()
        if leader is None or leader.raft is None or leader.raft.leadership is None:
            return
        leadership, latest = leader.raft.leadership, leader.raft.history.latest
        if leadership.is_caught_up(node.key, self.world.now_ms):
            self._decide(
                leader,
                refused(latest, leadership.high_watermark)
                or with_added(latest, voter_of(node.key), LISTENER),
            )

    def _remove(self, node: Node) -> None:
        leader = self._leader()
        if leader is None or leader.raft is None or leader.raft.leadership is None:
            return
        latest = leader.raft.history.latest
        self._decide(
            leader,
            refused(latest, leader.raft.leadership.high_watermark)
            or with_removed(latest, latest.voters.key_of(node.id)),
        )

    def _decide(self, leader: VoterNode, outcome: VoterSet | Refusal) -> None:
        if isinstance(outcome, VoterSet) and self.world.can_work(outcome):
            self.changed += 1
            leader.change(outcome)

    def _lose_disk(self, node: Node) -> None:
        assert isinstance(node, VoterNode)
        if all(self.world.can_work(voter_set, without=node.id) for voter_set in self.world.sets()):
            self.lost += 1
            node.lose_disk()
            node.start()
