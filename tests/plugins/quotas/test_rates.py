"""The bucket of a quota."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blumfeld_quotas.rates import TokenBucket


@given(st.integers(0, 2**32), st.floats(100, 1e7))
def test_a_client_that_sends_whenever_it_may_comes_to_its_quota(seed: int, per_s_max: float) -> None:
    """Over its first minute, within 5 %, whatever the sizes and the moments."""
    random, bucket, now_ms, sent = Random(seed), TokenBucket(10, 1, per_s_max, 0.0), 0.0, 0.0
    while now_ms < 60_000:
        value = per_s_max * random.uniform(0.01, 0.1)
        sent += value
        now_ms += max(bucket.take(value, per_s_max, now_ms), random.uniform(0.1, 5))
    assert sent / 60 == pytest.approx(per_s_max, rel=0.05)


def test_a_bucket_lets_one_request_through_however_large_it_is() -> None:
    bucket = TokenBucket(burst_s=10, first_s=10, per_s=2, now_ms=0.0)
    assert bucket.throttle_ms(2, 0.0) == 0.0
    bucket.take(36, 2, 0.0)
    assert bucket.throttle_ms(2, 0.0) == 8_000
    assert bucket.throttle_ms(2, 7_000.0) == pytest.approx(1_000)
    assert bucket.throttle_ms(2, 8_000.0) == 0.0


def test_a_wait_is_no_longer_than_a_burst_and_the_debt_stays() -> None:
    """A hundred megabytes at a byte a second are 3 years: no int32 of milliseconds holds them, and no client waits so
    long."""
    bucket = TokenBucket(burst_s=10, first_s=1, per_s=1, now_ms=0.0)
    assert bucket.take(100_000_000, 1, 0.0) == 10_000
    assert bucket.throttle_ms(1, 10_000.0) == 10_000
    assert bucket.throttle_ms(0, 10_000.0) == 10_000, "a log of Kafka's may hold a 0"


def test_a_bucket_holds_no_more_than_its_burst() -> None:
    bucket = TokenBucket(burst_s=10, first_s=10, per_s=2, now_ms=0.0)
    bucket.take(1, 2, 3_600_000.0)
    bucket.take(20, 2, 3_600_000.0)
    assert bucket.throttle_ms(2, 3_600_000.0) == 500
