"""The lengths of pauses: `random_below` gives 0, or almost its limit."""

from __future__ import annotations

import pytest

from blumfeld_consensus_kraft.raft.pauses import Pauses
from blumfeld_consensus_kraft.raft.settings import Settings

SETTINGS = Settings(election_timeout_ms=1_000, election_backoff_max_ms=300, refused_jitter_ms=30)


def pauses(*, draw: float, losses: int = 0) -> Pauses:
    replica_pauses = Pauses(SETTINGS, lambda below: below * draw)
    replica_pauses.losses = losses
    return replica_pauses


def test_an_election_timeout_is_once_to_twice_the_configured_one() -> None:
    assert [pauses(draw=draw).election_ms() for draw in (0, 1)] == [1_000, 2_000]


@pytest.mark.parametrize(
    ("losses", "limit_ms"), [(0, 50), (1, 100), (2, 200), (3, 300), (9, 300), (5_000, 300)]
)
def test_a_backoff_doubles_with_each_loss_up_to_its_limit(losses: int, limit_ms: float) -> None:
    assert [pauses(draw=draw, losses=losses).backoff_ms() for draw in (0, 1)] == [0, limit_ms]


def test_the_first_pause_is_3_to_13_percent_of_the_election_timeout() -> None:
    assert [pauses(draw=draw).first_ms() for draw in (0, 1)] == [30, 130]


@pytest.mark.parametrize(("place", "low_ms", "high_ms"), [(0, 0, 0), (1, 50, 100), (2, 100, 150)])
def test_a_successor_pauses_by_its_place(place: int, low_ms: float, high_ms: float) -> None:
    assert [pauses(draw=draw).successor_ms(place) for draw in (0, 1)] == [low_ms, high_ms]


@pytest.mark.parametrize(("losses", "limit_ms"), [(0, 30), (1, 60), (3, 240), (4, 300), (5_000, 300)])
def test_a_refused_leader_is_replaced_within_the_jitter_which_doubles_with_each_loss(
    losses: int, limit_ms: float
) -> None:
    assert [pauses(draw=draw, losses=losses).refused_ms() for draw in (0, 1)] == [0, limit_ms]
