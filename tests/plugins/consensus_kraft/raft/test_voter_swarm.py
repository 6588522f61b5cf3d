"""Random histories of a quorum whose voters change: the same promises, and each disk is a voter of its own."""

from __future__ import annotations

import pytest

from tests.everyday import first
from tests.plugins.consensus_kraft.raft.voter_swarm import VoterSwarm


@pytest.mark.parametrize("seed", first(15, range(60)))
def test_raft_keeps_its_promises_while_voters_change(seed: int) -> None:
    VoterSwarm(seed).run()


def test_voters_do_change_and_lose_disks() -> None:
    swarms = [VoterSwarm(seed) for seed in range(12)]
    for swarm in swarms:
        swarm.run()
    assert sum(swarm.changed for swarm in swarms) > 12
    assert sum(swarm.lost for swarm in swarms) > 4
