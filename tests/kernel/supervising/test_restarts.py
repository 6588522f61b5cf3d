"""The rules by which a supervisor starts a node again, and the order in which it stops all of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from blumfeld.kernel.supervising.restarts import (
    BACKOFF_MS,
    BACKOFF_MS_MAX,
    SETTLED_MS,
    GiveUp,
    Restarts,
    StartAgain,
    stop_order,
)

KILLED = 137


def served(restarts: Restarts, from_ms: int, for_ms: int, status: int = KILLED) -> StartAgain | GiveUp:
    """The node serves for a while, and ends."""
    restarts.ready(from_ms)
    return restarts.ended(from_ms + for_ms, status)


def test_a_crash_is_followed_by_a_pause_that_doubles() -> None:
    restarts = Restarts()
    pauses = []
    for nth in range(12):
        decision = served(restarts, nth * 100_000, 10)
        assert isinstance(decision, StartAgain)
        pauses.append(decision.after_ms)
    assert pauses[:4] == [BACKOFF_MS, 2 * BACKOFF_MS, 4 * BACKOFF_MS, 8 * BACKOFF_MS]
    assert pauses[-1] == BACKOFF_MS_MAX


def test_a_crash_before_it_serves_again_counts_too() -> None:
    restarts = Restarts()
    assert served(restarts, 0, 10) == StartAgain(BACKOFF_MS)
    assert restarts.ended(5_000_000, 1) == StartAgain(2 * BACKOFF_MS), "it did not serve in these 5,000 s"


def test_a_node_that_served_for_long_has_no_failures() -> None:
    restarts = Restarts()
    served(restarts, 0, 10)
    served(restarts, 0, 10)
    assert served(restarts, 0, SETTLED_MS - 1) == StartAgain(4 * BACKOFF_MS)
    assert served(restarts, 0, SETTLED_MS) == StartAgain(BACKOFF_MS)


def test_a_node_that_never_served_is_given_up() -> None:
    assert Restarts().ended(10, 1) == GiveUp(1)
    assert Restarts().ended(10, KILLED) == GiveUp(1)


def test_a_manifest_that_cannot_be_run_is_given_up_at_any_time() -> None:
    restarts = Restarts()
    assert served(restarts, 0, 1_000_000, status=2) == GiveUp(2)


def test_a_node_that_was_asked_to_stop_starts_at_once() -> None:
    restarts = Restarts()
    assert served(restarts, 0, 10, status=0) == StartAgain(0)
    assert served(restarts, 0, 10) == StartAgain(BACKOFF_MS), "a clean stop is no failure"


def test_brokers_stop_first_and_the_leader_with_the_last_majority() -> None:
    assert stop_order([1, 2, 3, 4, 5], [1, 2, 3], 1) == [[4], [5], [2], [3, 1]]
    assert stop_order([1, 2, 3], [1, 2, 3], 2) == [[1], [3, 2]]
    assert stop_order([1, 2], [1], 1) == [[2], [1]]
    assert stop_order([1, 2, 3], [1, 2, 3], None) == [[1], [2, 3]]
    assert stop_order([7, 8], [], None) == [[7], [8]]
    assert stop_order([], [1], None) == []


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 12), st.sets(st.integers(1, 9)))
def test_every_running_node_is_stopped_once(
    count: int, controllers: int, leader: int, gone: set[int]
) -> None:
    """Whatever has crashed before: and as long as another group is left, a majority of the voters serves."""
    node_ids = [node_id for node_id in range(1, count + 1) if node_id not in gone]
    voters = list(range(1, min(controllers, count) + 1))
    groups = stop_order(node_ids, voters, leader)
    assert sorted(node_id for group in groups for node_id in group) == node_ids
    running = set(node_ids)
    had_majority = len(running & set(voters)) * 2 > len(voters)
    for nth, group in enumerate(groups):
        running -= set(group)
        if had_majority and nth < len(groups) - 1:
            assert len(running & set(voters)) * 2 > len(voters)
    assert all(leader in group for group in groups[-1:] if leader in node_ids and leader in voters)
