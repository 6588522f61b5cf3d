"""Random faults for a quorum of pure replicas: one seed, one history."""

from __future__ import annotations

from collections.abc import Callable

from blumfeld_consensus_kraft.raft.settings import Settings
from tests.plugins.consensus_kraft.raft.world import BrokenPromiseError, Node, World

STEP_MS = 400.0
HEALED_MS = 60_000.0
SUCCESSION_MS = 900.0
"""Longest time from the death of a leader's process to the next leader, where nothing else is wrong. It is shorter than
the election timeout: nobody waits for that one."""


class Swarm:
    """Faults and appends by turns; then everything heals, and the quorum must commit again."""

    def __init__(self, seed: int) -> None:
        directories = seed % 2 == 0
        self.world = World(seed, nodes=3 if seed % 3 else 5, settings=Settings(), directories=directories)
        self._random = self.world.random
        self._value = 0
        self._faults: list[Callable[[Node], None]] = self._random.sample(
            [
                *([self._lose_disk] if directories else []),
                self._power_cut,
                self._kill,
                self._stall,
                self._cut_one_way,
                self._isolate,
                self._heal,
                self._lossy,
                self._slow_disk,
                self._resign,
                self._refuse,
                self._contest,
                self._snapshot,
            ],
            k=self._random.randint(3, 8),
        )

    def run(self, steps: int = 40) -> World:
        """Run it.

        :raises BrokenPromiseError: a promise of raft is broken, or the healed quorum commits nothing
        """
        world = self.world
        world.start()
        for _ in range(steps):
            for _ in range(self._random.randint(0, 3)):
                self._append()
            if self._random.random() < 0.6:
                node = self._random.choice(list(world.nodes.values()))
                fault = self._random.choice(self._faults)
                world.faults[fault.__name__] = world.faults.get(fault.__name__, 0) + 1
                fault(node)
            world.run(self._random.uniform(0, STEP_MS))
        self._check_liveness()
        return world

    def _append(self) -> None:
        for node in self.world.nodes.values():
            if node.raft is not None and node.leading_epoch >= 0 and not node.stalled:
                self._value += 1
                node.append([self._value])

    def _check_liveness(self) -> None:
        world = self.world
        world.cut.clear()
        world.loss, world.disk_slow = 0.0, 1.0
        for node in world.nodes.values():
            if node.raft is None:
                node.start()
            elif node.stalled:
                node.resume()

        def agreed() -> bool:
            ends = {node.raft.high_watermark for node in world.nodes.values() if node.raft is not None}
            leader = world.leader
            return (
                leader is not None
                and leader.raft is not None
                and leader.raft.leadership is not None
                and ends == {leader.log.end_offset}
            )

        if not world.run(HEALED_MS, agreed):
            state = [(n.id, n.raft and n.raft.epoch, n.raft and n.raft.role) for n in world.nodes.values()]
            raise BrokenPromiseError(f"the healed quorum does not agree: {state}")
        self._check_succession()

    def _check_succession(self) -> None:
        """The leader's process dies. Where disks were lost, what is left may be no majority."""
        world = self.world
        assert world.leader is not None
        assert world.leader.raft is not None
        voters = world.leader.raft.voters
        left = [node for node in world.nodes.values() if node is not world.leader and node.key in voters]
        if len(left) >= voters.majority and (took_ms := succession_ms(world)) > SUCCESSION_MS:
            raise BrokenPromiseError(f"the healed quorum took {took_ms:.0f} ms to replace its leader")

    # Faults

    def _power_cut(self, node: Node) -> None:
        self._restart(node, power=True)

    def _kill(self, node: Node) -> None:
        self._restart(node, power=False)

    def _restart(self, node: Node, *, power: bool) -> None:
        if node.raft is None:
            node.start()
        else:
            node.crash(power=power)
            if self._random.random() < 0.5:
                node.start()

    def _lose_disk(self, node: Node) -> None:
        """Only so many that a majority of the voters keeps its disks: the others are observers for ever."""
        world = self.world
        lost = {other.id for other in world.nodes.values() if other.key not in world.voters} | {node.id}
        if len(world.nodes) - len(lost) >= world.voters.majority:
            node.lose_disk()
            if self._random.random() < 0.5:
                node.start()

    def _stall(self, node: Node) -> None:
        if node.stalled:
            node.resume()
        else:
            node.stalled = True

    def _cut_one_way(self, node: Node) -> None:
        other = self._random.choice(list(self.world.nodes))
        self.world.cut.add((node.id, other))

    def _isolate(self, node: Node) -> None:
        for other in self.world.nodes:
            self.world.cut |= {(node.id, other), (other, node.id)}

    def _heal(self, _node: Node) -> None:
        self.world.cut.clear()
        self.world.loss = 0.0

    def _lossy(self, _node: Node) -> None:
        self.world.loss = self._random.choice([0.0, 0.05, 0.3])

    def _slow_disk(self, _node: Node) -> None:
        self.world.disk_slow = self._random.choice([1.0, 20.0, 300.0])

    def _resign(self, node: Node) -> None:
        node.do(lambda raft: raft.resign(self.world.now_ms))

    def _refuse(self, node: Node) -> None:
        node.do(lambda raft: raft.leader_refused(self.world.now_ms))

    def _contest(self, _node: Node) -> None:
        """The leader dies, the others stand for election at once, and some of them die when they have told a vote."""
        world = self.world
        if world.leader is not None:
            world.leader.crash(power=False)
        world.disk_slow = self._random.choice([1.0, 5.0, 20.0])
        world.voters_to_kill = self._random.randint(0, 2)
        for other in world.nodes.values():
            other.do(lambda raft: raft.leader_refused(world.now_ms))

    def _snapshot(self, node: Node) -> None:
        if node.raft is None or node.raft.high_watermark <= node.log.start_offset:
            return
        end = min(node.raft.high_watermark, node.log.flushed_end_offset)
        if end > node.log.start_offset:
            node.log.snapshot(end)


def succession_ms(world: World) -> float:
    """Kill the leader's process; return the time until another node leads."""
    dead, began_ms = world.leader, world.now_ms
    assert dead is not None
    dead.crash(power=False)
    world.run(HEALED_MS, lambda: world.leader is not None)
    return world.now_ms - began_ms
