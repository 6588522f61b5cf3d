"""The leader's process dies, and its machine tells: how soon another voter leads."""

from __future__ import annotations

import pytest

from tests.everyday import first
from tests.plugins.consensus_kraft.raft.swarm import SUCCESSION_MS, succession_ms
from tests.plugins.consensus_kraft.raft.world import World


def time_of(seed: int, nodes: int, disk_slow: float) -> float:
    world = World(seed, nodes=nodes)
    world.start()
    assert world.run(10_000, lambda: world.leader is not None and bool(world.committed))
    world.run(world.random.uniform(0, 600))
    world.disk_slow = disk_slow
    return succession_ms(world)


@pytest.mark.parametrize("seeds", first(1, [40, 150]))
@pytest.mark.parametrize(("nodes", "disk_slow"), [(3, 1.0), (5, 1.0), (3, 10.0)])
def test_survivors_that_stand_at_once_do_not_wait_for_the_dead_voter(
    nodes: int, disk_slow: float, seeds: int
) -> None:
    """Each voter's own vote, and none of the dead one: such an election is lost, and another one begins soon."""
    times = sorted(time_of(seed, nodes, disk_slow) for seed in range(seeds))
    assert times[len(times) // 2] < 150
    assert times[-1] < SUCCESSION_MS
