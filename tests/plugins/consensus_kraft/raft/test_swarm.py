"""Random histories of a quorum: promises hold at each step, and a healed quorum commits again."""

from __future__ import annotations

import pytest

from tests.everyday import first
from tests.plugins.consensus_kraft.raft.swarm import Swarm


@pytest.mark.parametrize("seed", first(15, range(60)))
def test_raft_keeps_its_promises_under_faults(seed: int) -> None:
    Swarm(seed).run()


def test_the_same_seed_gives_the_same_history() -> None:
    first, again = Swarm(7).run(), Swarm(7).run()
    assert (first.committed, first.leaders, first.messages) == (
        again.committed,
        again.leaders,
        again.messages,
    )
