"""Members of both protocols in one group, with everything going wrong: the simulation's mixed mode, under each policy
by which they may meet.
"""

from __future__ import annotations

import pytest

from blumfeld_groups_classic import ClassicGroupProtocol
from blumfeld_groups_kip848.protocol import ConsumerGroupProtocol
from campaigns.groups import simulation
from campaigns.groups.simulation import Simulation
from tests.everyday import first

MINUTES = 2.0


@pytest.mark.parametrize("seed", first(1, range(2)))
@pytest.mark.parametrize("policy", ["bidirectional", "upgrade"])
def test_members_of_both_protocols_share_a_group(
    seed: int, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No partition has two owners, what was committed stays, a reload changes nothing, and in the calm everyone gets
    his part. Where groups don't come back a group may have classic members only, who learn of everything by themselves.
    """
    monkeypatch.setitem(simulation.CONFIG, "group.consumer.migration.policy", policy)
    run = Simulation(500 + seed, MINUTES, "mixed", [ClassicGroupProtocol(), ConsumerGroupProtocol()])
    run.run()
    assert run.events > 10
