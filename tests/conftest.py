"""For all tests."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.wheels import build

# The same examples in every run, however busy the machine is; others with `--hypothesis-profile=default`. Because they
# are the same, more of them find nothing new in an everyday run: `make test-all` has the profile "whole".
settings.register_profile(
    "blumfeld",
    deadline=None,
    derandomize=True,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("whole", settings.get_profile("blumfeld"), max_examples=100)
settings.load_profile("blumfeld")

M_MMAP_THRESHOLD = -3
MMAP_THRESHOLD_BYTES = 131_072

# glibc raises this threshold to the largest block that was ever freed, and keeps an arena for each thread. After that
# the buffers of a few hundred brokers in threads leave 500 MB behind, of which 5 are in use.
if hasattr(ctypes.CDLL(None), "mallopt"):
    ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)


@pytest.fixture(scope="module", autouse=True)
def _what_others_left() -> None:
    """Out of the collector's sight: with the heap of thousands of tests each collection takes a second, and some tests
    ask for many.
    """
    gc.collect()
    gc.freeze()
    gc.collect()  # otherwise the next one waits until there is a quarter of what was frozen


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that :func:`tests.wheels.build` fills, once for all tests."""
    folder = tmp_path_factory.mktemp("wheels")
    build(folder)
    return folder


def pytest_sessionfinish() -> None:
    """DuckDB's bindings tell of every object that is still frozen at the end as a leak."""
    gc.unfreeze()
