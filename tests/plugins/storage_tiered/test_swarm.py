"""Seeds of random lives. ``python -m tests.plugins.storage_tiered.test_swarm FIRST COUNT`` runs more of them."""

from __future__ import annotations

import sys

import pytest

from tests.plugins.storage_tiered.swarm import live


@pytest.mark.parametrize("seed", range(20))
def test_a_tiered_log_stays_whole_whatever_happens_to_the_store_and_the_nodes(seed: int) -> None:
    live(seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(1000, 6000, 250))
def test_thousands_of_lives(first: int) -> None:
    for seed in range(first, first + 250):
        live(seed)


if __name__ == "__main__":
    first, count = int(sys.argv[1]), int(sys.argv[2])
    failures = 0
    for seed in range(first, first + count):
        try:
            live(seed)
        except AssertionError as error:
            failures += 1
            print(error, flush=True)
    print(f"{count} lives, {failures} failed")
