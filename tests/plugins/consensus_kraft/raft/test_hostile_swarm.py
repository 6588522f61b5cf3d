"""Histories of a quorum with a client that forges requests: the same promises; no leader falls by a forged frame."""

from __future__ import annotations

from random import Random

import pytest

from blumfeld_consensus_kraft.raft.messages import EndEpoch
from tests.everyday import first
from tests.plugins.consensus_kraft.raft.hostile_swarm import HostileSwarm, forged
from tests.plugins.consensus_kraft.raft.world import World


@pytest.mark.parametrize("seed", first(15, range(60)))
def test_raft_keeps_its_promises_while_a_client_forges_requests(seed: int) -> None:
    HostileSwarm(seed).run()


@pytest.mark.parametrize("seed", first(2, range(6)))
def test_forged_requests_end_no_leadership_that_a_majority_hears(seed: int) -> None:
    """But for EndQuorumEpoch in the leader's own epoch: without authentication it is the leader's own word."""
    random = Random(f"forged {seed}")
    world = World(seed, nodes=3 if seed % 2 else 5, directories=seed % 3 == 0)
    world.start()
    assert world.run(10_000, lambda: len(world.committed) > 0)
    world.run(1_000)
    leaders = dict(world.leaders)
    for _ in range(500):
        node = random.choice(list(world.nodes.values()))
        request = forged(random, node)
        assert node.raft is not None
        if not (isinstance(request, EndEpoch) and request.epoch == node.raft.epoch):
            world.handle(node, request, lambda _: None)
        world.run(random.uniform(0, 40))
    assert world.leaders == leaders
    assert {node.stored.epoch for node in world.nodes.values()} == {max(leaders)}
