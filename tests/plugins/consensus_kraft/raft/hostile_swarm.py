"""Random histories of a quorum to whose ports anybody may write: forged requests with any numbers in them.

A forged fetch claims no offset that its replica could have: a lie about what is flushed can't be told from the truth
without authentication. Everything else may be in a frame, also what an honest voter would send.
"""

from __future__ import annotations

from random import Random

from blumfeld.log.quorum_state import EPOCH_MAX
from blumfeld_consensus_kraft.raft.checks import EPOCH_LEAP_MAX
from blumfeld_consensus_kraft.raft.messages import BeginEpoch, EndEpoch, FetchRequest, Request, VoteRequest
from blumfeld_consensus_kraft.raft.voters import ReplicaKey
from tests.plugins.consensus_kraft.raft.swarm import Swarm
from tests.plugins.consensus_kraft.raft.world import BrokenPromiseError, Node, World

OFFSETS = (-(2**63), -1, 0, 1, 2, 5, 20, 2**62, 2**63 - 1)
FRAMES_MAX = 20
"""Forged requests of one fault."""


def forged(random: Random, node: Node) -> Request:
    """A request to a replica as anybody may write it."""
    world, raft = node.world, node.raft
    epoch = 0 if raft is None else raft.epoch
    leaps = (0, 1, 1, 2, EPOCH_LEAP_MAX, EPOCH_LEAP_MAX + 1)
    near = [epoch + leap for leap in leaps]
    claimed = random.choice([*near, *near, epoch - 1, -1, -(2**31), EPOCH_MAX, EPOCH_MAX + 1])
    other = random.choice([*world.nodes, 99, 2**31 - 1, -1])
    key = random.choice([world.voters.key_of(other), ReplicaKey(other), ReplicaKey(other, b"?" * 16)])
    me = random.choice([node.key, node.key, ReplicaKey(node.id), ReplicaKey(node.id, b"?" * 16)])
    kind = random.choice([VoteRequest, VoteRequest, BeginEpoch, BeginEpoch, EndEpoch, FetchRequest])
    if kind is VoteRequest:
        last_epoch = random.choice([0, epoch, claimed - 1, claimed])
        return VoteRequest(claimed, key, me, last_epoch, random.choice(OFFSETS), random.random() < 0.5)
    if kind is BeginEpoch:
        return BeginEpoch(claimed, other, me)
    if kind is EndEpoch:
        return EndEpoch(
            claimed, other, tuple(random.sample([me, key, ReplicaKey(98)], k=random.randint(0, 3)))
        )
    return FetchRequest(key, claimed, random.choice([-(2**63), -1, 2**62, 2**63 - 1]), random.choice(near))


class HostileSwarm(Swarm):
    """The swarm, with a client that forges requests as one more fault."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._faults += [self._forge] * 3
        self._forges = True

    def run(self, steps: int = 40) -> World:
        """As the swarm's; and the epochs are such as elections and forged leaps come to.

        :raises BrokenPromiseError: as the swarm's; or an epoch leapt
        """
        world = super().run(steps)
        limit = len(world.leaders) + EPOCH_LEAP_MAX * FRAMES_MAX * (1 + world.faults.get("_forge", 0))
        for node in world.nodes.values():
            if node.stored.epoch > limit:
                raise BrokenPromiseError(f"node {node.id} is in epoch {node.stored.epoch}, above {limit}")
        return world

    def _check_liveness(self) -> None:
        self._forges = False
        super()._check_liveness()

    def _forge(self, _node: Node) -> None:
        world = self.world
        targets = list(world.nodes.values())
        for _ in range(self._random.randint(1, FRAMES_MAX)):
            node = self._random.choice(targets)
            world.at(self._random.uniform(0, 400), lambda node=node: self._write(node))  # type: ignore[misc]

    def _write(self, node: Node) -> None:
        """Write one forged request to a replica's port."""
        if self._forges and node.raft is not None and not node.stalled:
            self.world.handle(node, forged(self._random, node), lambda _: None)
