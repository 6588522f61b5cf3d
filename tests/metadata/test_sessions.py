"""Sessions of brokers: which incarnation is alive, which session ends first, where a shutdown began."""

from __future__ import annotations

import pytest

from blumfeld.metadata.sessions import BrokerSessions

TIMEOUT_MS = 9_000.0


def run(sessions: BrokerSessions, from_ms: float, to_ms: float) -> None:
    """The controller runs without a break."""
    while from_ms < to_ms:
        from_ms = min(to_ms, from_ms + 500.0)
        sessions.runs(from_ms)


@pytest.fixture
def sessions() -> BrokerSessions:
    return BrokerSessions(TIMEOUT_MS)


def test_only_the_incarnation_that_was_heard_of_is_alive(sessions: BrokerSessions) -> None:
    """A restarted broker has a new epoch. A sign of life of the new one is none of the old one."""
    sessions.heard(1, epoch=7, now_ms=0.0)
    assert sessions.is_live(1, 7, TIMEOUT_MS - 1)
    assert not sessions.is_live(1, 6, 0.0)
    assert not sessions.is_live(1, 8, 0.0)
    assert not sessions.is_live(1, 7, TIMEOUT_MS)


def test_the_session_that_ends_first_sets_the_time(sessions: BrokerSessions) -> None:
    assert sessions.next_expiry_ms() is None
    sessions.heard(1, epoch=1, now_ms=100.0)
    sessions.heard(2, epoch=2, now_ms=50.0)
    run(sessions, 50.0, 50.0 + TIMEOUT_MS - 1)
    assert sessions.next_expiry_ms() == 50.0 + TIMEOUT_MS
    assert sessions.expired(50.0 + TIMEOUT_MS - 1) == []
    assert sessions.expired(50.0 + TIMEOUT_MS) == [2]
    assert sessions.expired(100.0 + TIMEOUT_MS) == [1, 2]


def test_the_sessions_are_looked_at_often_enough_to_see_a_pause(sessions: BrokerSessions) -> None:
    sessions.heard(1, epoch=1, now_ms=0.0)
    looks, now_ms = 0, 0.0
    while not sessions.expired(now_ms):
        looks, now_ms = looks + 1, sessions.next_expiry_ms() or 0.0
    assert (looks, now_ms) == (8, TIMEOUT_MS)


@pytest.mark.parametrize(
    ("silent_ms", "ends_ms"),
    [(97_500.0, 106_500.0), (60_000.0, 104_500.0), (100_000.0, 109_000.0), (101_000.0, 109_000.0)],
)
def test_a_session_of_a_silent_process_ends_earlier_and_has_half_of_its_time_at_least(
    sessions: BrokerSessions, silent_ms: float, ends_ms: float
) -> None:
    sessions.heard(1, epoch=1, now_ms=100_000.0)
    sessions.silent_since(1, silent_ms)
    sessions.silent_since(7, silent_ms)  # a controller alone has no session
    run(sessions, 100_000.0, ends_ms - 1)
    assert sessions.expired(ends_ms - 1) == []
    assert sessions.expired(ends_ms) == [1]


@pytest.mark.parametrize("first", ["timer", "heartbeat"])
def test_a_controller_that_was_paused_fences_nobody_for_it(sessions: BrokerSessions, first: str) -> None:
    """Broker 1 has been silent for 4 s when the pause begins. Behind it, it has the 5 s left that it had before."""
    sessions.heard(1, epoch=1, now_ms=0.0)
    sessions.heard(2, epoch=2, now_ms=0.0)
    run(sessions, 0.0, 4_000.0)
    now_ms = 64_000.0
    if first == "timer":
        assert sessions.expired(now_ms) == []
    sessions.heard(2, epoch=2, now_ms=now_ms)
    assert sessions.expired(now_ms) == []
    run(sessions, now_ms, now_ms + 4_999.0)
    assert sessions.expired(now_ms + 4_999.0) == []
    assert sessions.expired(now_ms + 5_000.0) == [1]


def test_small_delays_of_the_controller_do_not_keep_a_dead_broker_alive(sessions: BrokerSessions) -> None:
    sessions.heard(1, epoch=1, now_ms=0.0)
    for now_ms in range(2_000, 9_000, 2_000):
        assert sessions.expired(float(now_ms)) == []
    assert sessions.expired(TIMEOUT_MS + 1_000) == [1]


def test_a_process_that_ended_is_not_alive_but_its_broker_has_time_to_come_back(
    sessions: BrokerSessions,
) -> None:
    sessions.ended(1, epoch=1, now_ms=0.0)
    assert not sessions.is_live(1, 1, 0.0)
    run(sessions, 0.0, TIMEOUT_MS - 1)
    assert sessions.expired(TIMEOUT_MS - 1) == []
    assert sessions.expired(TIMEOUT_MS) == [1]


def test_a_shutdown_begins_once(sessions: BrokerSessions) -> None:
    """Each heartbeat of a broker that wants to stop says so again. The broker waits for the first record only."""
    assert sessions.shutdown_offset(1) == -1
    sessions.shutting_down(1, 40)
    sessions.shutting_down(1, 41)
    assert sessions.shutdown_offset(1) == 40
    sessions.serves(1)
    assert sessions.shutdown_offset(1) == -1


def test_nothing_is_expected_of_a_broker_that_is_gone(sessions: BrokerSessions) -> None:
    sessions.heard(1, epoch=1, now_ms=0.0, metadata_offset=12)
    sessions.shutting_down(1, 40)
    assert sessions.metadata_offset(1) == 12
    sessions.gone(1)
    assert sessions.expired(10 * TIMEOUT_MS) == []
    assert sessions.shutdown_offset(1) == sessions.metadata_offset(1) == -1
