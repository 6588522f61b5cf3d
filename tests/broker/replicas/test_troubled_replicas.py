"""When a replica that can't be written gives way, and when it comes back."""

from __future__ import annotations

from blumfeld.broker.replicas.troubled_replicas import CALM_MS, PAUSE_MS, PAUSE_MS_MAX, TroubledReplicas
from blumfeld.spi.storage import TopicPartition

AT, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def usable(_: TopicPartition) -> bool:
    return True


def test_a_replica_gives_way_with_its_first_failed_write() -> None:
    rules = TroubledReplicas()
    assert not rules.gives_way(AT)
    rules.bad(AT, 0.0)
    assert rules.gives_way(AT)
    assert not rules.gives_way(OTHER)
    assert len(rules) == 1


def test_it_comes_back_when_it_is_usable_and_was_well_for_a_pause() -> None:
    rules = TroubledReplicas()
    rules.bad(AT, 0.0)
    rules.bad(AT, 500.0)
    assert rules.come_back(PAUSE_MS, usable) == []
    assert rules.come_back(500.0 + PAUSE_MS, lambda _: False) == []
    assert rules.come_back(500.0 + PAUSE_MS, usable) == [AT]
    assert not rules.gives_way(AT)
    assert len(rules) == 0


def test_the_pause_doubles_with_each_return_that_fails_and_has_a_bound() -> None:
    """Leaders would else change once a second, for as long as a disk is over its quota."""
    rules, now_ms, pauses = TroubledReplicas(), 0.0, []
    for _ in range(10):
        rules.bad(AT, now_ms)
        began_ms = now_ms
        while not rules.come_back(now_ms, usable):
            now_ms += 100.0
        pauses.append(now_ms - began_ms)
        now_ms += 10.0
    assert pauses[:4] == [PAUSE_MS, 2 * PAUSE_MS, 4 * PAUSE_MS, 8 * PAUSE_MS]
    assert pauses[-1] == PAUSE_MS_MAX


def test_what_was_well_for_long_begins_anew() -> None:
    rules = TroubledReplicas()
    rules.bad(AT, 0.0)
    assert rules.come_back(PAUSE_MS, usable) == [AT]
    assert not rules.is_idle
    rules.come_back(PAUSE_MS + CALM_MS, usable)
    assert rules.is_idle
    rules.bad(AT, 100_000.0)
    assert rules.come_back(100_000.0 + PAUSE_MS, usable) == [AT]


def test_a_replica_that_left_is_forgotten() -> None:
    rules = TroubledReplicas()
    rules.bad(AT, 0.0)
    rules.forget(AT)
    rules.forget(OTHER)
    assert rules.is_idle
