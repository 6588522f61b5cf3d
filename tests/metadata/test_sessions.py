"""Sessions of brokers: which incarnation is alive, which session ends first, where a shutdown began."""

from __future__ import annotations

from blumfeld.metadata.brokers.sessions import BrokerSessions

TIMEOUT_MS = 9_000.0


def test_only_the_incarnation_that_was_heard_of_is_alive() -> None:
    """A restarted broker has a new epoch. A sign of life of the new one is none of the old one."""
    sessions = BrokerSessions(TIMEOUT_MS)
    sessions.heard(1, epoch=7, now_ms=0.0)
    assert sessions.is_live(1, 7, TIMEOUT_MS - 1)
    assert not sessions.is_live(1, 6, 0.0)
    assert not sessions.is_live(1, 8, 0.0)
    assert not sessions.is_live(1, 7, TIMEOUT_MS)


def test_the_session_that_ends_first_sets_the_time() -> None:
    sessions = BrokerSessions(TIMEOUT_MS)
    assert sessions.next_expiry_ms() is None
    sessions.heard(1, epoch=1, now_ms=100.0)
    sessions.heard(2, epoch=2, now_ms=50.0)
    assert sessions.next_expiry_ms() == 50.0 + TIMEOUT_MS
    assert sessions.expired(50.0 + TIMEOUT_MS - 1) == []
    assert sessions.expired(50.0 + TIMEOUT_MS) == [2]
    assert sessions.expired(100.0 + TIMEOUT_MS) == [1, 2]


def test_a_shutdown_begins_once() -> None:
    """Each heartbeat of a broker that wants to stop says so again. The broker waits for the first record only."""
    sessions = BrokerSessions(TIMEOUT_MS)
    assert sessions.shutdown_offset(1) == -1
    sessions.shutting_down(1, 40)
    sessions.shutting_down(1, 41)
    assert sessions.shutdown_offset(1) == 40


def test_nothing_is_expected_of_a_broker_that_is_gone() -> None:
    sessions = BrokerSessions(TIMEOUT_MS)
    sessions.heard(1, epoch=1, now_ms=0.0, metadata_offset=12)
    sessions.shutting_down(1, 40)
    assert sessions.metadata_offset(1) == 12
    sessions.gone(1)
    assert sessions.expired(10 * TIMEOUT_MS) == []
    assert sessions.shutdown_offset(1) == sessions.metadata_offset(1) == -1
