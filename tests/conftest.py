"""For all tests."""

from __future__ import annotations

import gc

import pytest
from hypothesis import HealthCheck, settings

# The same examples in every run, however busy the machine is; others with `--hypothesis-profile=default`. Because they
# are the same, more of them find nothing new in an everyday run: `make test-all` has the profile "whole".
settings.register_profile(
    "blumfeld",
    deadline=None,
    derandomize=True,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("whole", settings.get_profile("blumfeld"), max_examples=100)
settings.load_profile("blumfeld")


@pytest.fixture(scope="module", autouse=True)
def _what_others_left() -> None:
    """Out of the collector's sight: with the heap of thousands of tests each collection takes a second, and some tests
    ask for many.
    """
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """DuckDB's bindings tell of every object that is still frozen at the end as a leak."""
    gc.unfreeze()
