"""How often connections may be made."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from blumfeld.net.connections.creation_rate import WINDOW_S, CreationRate


def accepted(rate: CreationRate, until_ms: float, begin_ms: float = 0.0) -> int:
    """How many come through in that time, when everyone comes as soon as it may."""
    now_ms, count = begin_ms, 0
    while now_ms < until_ms:
        wait_ms = rate.wait_ms(now_ms)
        if wait_ms:
            now_ms += wait_ms
            continue
        rate.took(now_ms)
        count += 1
    return count


def test_a_burst_and_then_the_rate() -> None:
    """Ten seconds' connections at once, as Kafka's window lets them; then so many a second."""
    rate = CreationRate(20, 0.0)
    assert accepted(rate, 1.0) == 20 * WINDOW_S
    assert 99 <= accepted(rate, 5_001.0, 1.0) <= 101


def test_a_silence_saves_up_no_more_than_the_window() -> None:
    rate = CreationRate(20, 0.0)
    assert accepted(rate, 1.0) == 20 * WINDOW_S
    assert accepted(rate, 100_001.0, 100_000.0) == 20 * WINDOW_S


@given(st.integers(1, 50), st.lists(st.floats(0, 3_000), max_size=30))
def test_never_more_than_the_rate_over_the_window(per_s: int, pauses_ms: list[float]) -> None:
    rate, now_ms, count = CreationRate(per_s, 0.0), 0.0, 0
    for pause_ms in pauses_ms:
        now_ms += pause_ms
        while not rate.wait_ms(now_ms):
            rate.took(now_ms)
            count += 1
    assert count <= per_s * WINDOW_S + now_ms / 1_000 * per_s + 1


def test_no_rate_is_no_connection() -> None:
    rate = CreationRate(0, 0.0)
    assert rate.wait_ms(10.0**9) == float("inf")


def test_a_changed_rate_remembers_what_came_before() -> None:
    rate = CreationRate(10, 0.0)
    for _ in range(60):
        rate.took(0.0)
    rate.limit(5, 0.0)
    assert rate.wait_ms(0.0) > 0
    rate.limit(10, 0.0)
    assert accepted(rate, 1.0) == 40
