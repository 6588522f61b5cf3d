"""The pauses after which a live archive asks an unreachable broker again."""

from __future__ import annotations

from blumfeld_sink_spark.spark.run.patience import BACKOFF_MAX_S, FOREVER, Patience


def _pauses(patience: Patience, now_s: float, answers_after_s: float = 0.0) -> list[float]:
    """Returns the pauses between attempts, until it gives up or has made ten attempts."""
    pauses_s: list[float] = []
    while len(pauses_s) < 10 and (pause_s := patience.pause_s(now_s)) is not None:
        pauses_s.append(pause_s)
        now_s += pause_s + answers_after_s
    return pauses_s


def test_pauses_double_up_to_a_bound() -> None:
    assert _pauses(Patience(FOREVER), 100.0) == [1, 2, 4, 8, 16, *[BACKOFF_MAX_S] * 5]


def test_it_asks_once_more_when_the_time_is_up_and_gives_up() -> None:
    assert _pauses(Patience(10_000), 100.0) == [1, 2, 4, 3]
    assert _pauses(Patience(10_000), 100.0, answers_after_s=5.0) == [1, 2]


def test_without_time_it_gives_up_at_once() -> None:
    assert Patience(0).pause_s(100.0) is None


def test_a_broker_that_answered_counts_from_the_start() -> None:
    patience = Patience(10_000)
    assert patience.worked(100.0) is None
    assert (patience.pause_s(100.0), patience.pause_s(101.0)) == (1, 2)
    assert patience.away_s(103.0) == 3.0
    assert patience.worked(103.5) == 3.5
    assert (patience.pause_s(5000.0), patience.away_s(5001.0)) == (1, 1.0)


def test_an_outage_counts_from_when_it_was_found() -> None:
    """The outage doesn't begin when the query gives up, which may be a minute later."""
    patience = Patience(10_000)
    assert patience.found_away(100.0)
    assert not patience.found_away(101.0)
    assert patience.pause_s(108.5) == 1
    assert patience.pause_s(109.5) == 0.5
    assert patience.worked(112.0) == 12.0
    assert patience.found_away(113.0)
