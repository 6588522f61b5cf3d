"""Controllers under faults from a seed: see :mod:`.simulated_terms`."""

from __future__ import annotations

import pytest

from tests.plugins.consensus_zk_compat.controller.simulated_terms import simulate


@pytest.mark.parametrize("seed", range(10))
def test_whatever_fails_each_epoch_has_one_writer_and_everything_is_finished(seed: int) -> None:
    terms = simulate(seed)
    assert terms.oracle is not None
    assert terms.oracle.winners, "nobody was ever elected"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 310))
def test_whatever_fails_all_the_same_after_many_seeds(seed: int) -> None:
    simulate(seed)
