"""The replication quota: the rate as Kafka's ``SimpleRate`` has it, and the bytes that a transfer copies over time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from blumfeld.spi.replication_quota import UNLIMITED, ReplicationQuota

SAMPLE_MS = 1_000


def quota(bytes_per_s_max: int = 100, samples: int = 11) -> ReplicationQuota:
    return ReplicationQuota(samples, SAMPLE_MS, bytes_per_s_max)


def test_without_a_rate_nothing_is_exceeded() -> None:
    free = ReplicationQuota(11, SAMPLE_MS)
    assert free.bytes_per_s_max == UNLIMITED
    free.record(2**50, 0)
    assert not free.is_exceeded(0)


def test_a_rate_that_is_raised_counts_at_once() -> None:
    replica_quota = quota()
    replica_quota.record(1_000, 0)
    assert replica_quota.is_exceeded(5_000)
    replica_quota.bytes_per_s_max = 1_000
    assert not replica_quota.is_exceeded(5_000)
    assert replica_quota.ends_ms(5_000) == 5_000


def rate_of(recorded: list[tuple[int, int]], now_ms: int, samples: int) -> float:
    """Bytes a second, counted anew from all that was recorded: a model of ``SimpleRate``."""
    kept: list[tuple[int, int]] = []
    for at_ms, size_bytes in recorded:
        kept = [sample for sample in kept if at_ms - sample[0] < samples * SAMPLE_MS]
        if kept and at_ms - kept[-1][0] < SAMPLE_MS:
            kept[-1] = (kept[-1][0], kept[-1][1] + size_bytes)
        else:
            kept.append((at_ms, size_bytes))
    kept = [sample for sample in kept if now_ms - sample[0] < samples * SAMPLE_MS]
    if not kept:
        return 0.0
    return sum(size for _, size in kept) * 1_000 / max(now_ms - kept[0][0], SAMPLE_MS)


steps = st.lists(st.tuples(st.integers(0, 2_500), st.integers(1, 1_000)), min_size=1, max_size=30)


@given(steps, st.integers(1, 6), st.integers(0, 500), st.integers(0, 5_000))
def test_it_is_exceeded_when_the_rate_is_above_it(
    steps: list[tuple[int, int]], samples: int, bytes_per_s_max: int, later_ms: int
) -> None:
    replica_quota = quota(bytes_per_s_max, samples)
    recorded: list[tuple[int, int]] = []
    now_ms = 0
    for wait_ms, size_bytes in steps:
        now_ms += wait_ms
        replica_quota.record(size_bytes, now_ms)
        recorded.append((now_ms, size_bytes))
        assert replica_quota.is_exceeded(now_ms) == (rate_of(recorded, now_ms, samples) > bytes_per_s_max)
    now_ms += later_ms
    assert replica_quota.is_exceeded(now_ms) == (rate_of(recorded, now_ms, samples) > bytes_per_s_max)


@given(steps, st.integers(1, 6), st.integers(0, 500))
def test_it_ends_when_it_says(steps: list[tuple[int, int]], samples: int, bytes_per_s_max: int) -> None:
    replica_quota = quota(bytes_per_s_max, samples)
    now_ms = 0.0
    for wait_ms, size_bytes in steps:
        now_ms += wait_ms
        replica_quota.record(size_bytes, now_ms)
    ends_ms = replica_quota.ends_ms(now_ms)
    assert (ends_ms > now_ms) == replica_quota.is_exceeded(now_ms)
    if ends_ms > now_ms + 2:
        assert replica_quota.is_exceeded(ends_ms - 1)
    assert not replica_quota.is_exceeded(ends_ms + 1e-3)


@given(st.integers(1, 400), st.integers(50, 2_000), st.integers(2, 11), st.integers(1, 300))
def test_a_transfer_that_asks_copies_at_the_rate(
    chunk_bytes: int, bytes_per_s_max: int, samples: int, pause_ms: int
) -> None:
    """It sends a chunk whenever it may. No chunk is larger than a sample's share."""
    chunk_bytes = min(chunk_bytes, bytes_per_s_max)
    replica_quota = quota(bytes_per_s_max, samples)
    sent, now_ms, until_ms = 0, 0.0, 60_000.0
    while now_ms < until_ms:
        if replica_quota.is_exceeded(now_ms):
            now_ms = replica_quota.ends_ms(now_ms) + 1e-3
            continue
        replica_quota.record(chunk_bytes, now_ms)
        sent += chunk_bytes
        now_ms += pause_ms
    able = chunk_bytes * until_ms / pause_ms
    wanted = bytes_per_s_max * until_ms / 1_000
    assert sent <= 1.6 * wanted + 2 * chunk_bytes
    assert sent >= 0.5 * min(wanted, able) - 2 * chunk_bytes
