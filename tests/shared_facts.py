"""Programs and captures that can't lie in this tree, found beside it; tests skip with a reason where they are absent.

The facts that tests compare bytes with lie in the tree: tests/kafka_facts.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

ALLOWED = ("floor", "market-data", "peer")
"""Bare servers to measure against, captures that exchanges may not let us pass on, Apache Kafka itself."""
_SHARED = Path(__file__).resolve().parents[2] / "shared"


def shared_path(relative: str) -> Path:
    """Return the path of a file beside this tree, or skip and say which file is absent.

    :raises ValueError: for a file that belongs into tests/data, since a bare clone must not skip its tests
    """
    if relative.split("/")[0] not in ALLOWED:
        raise ValueError(
            f"{relative} is outside of the tree: move it into tests/data, or allow its folder here"
        )
    path = _SHARED / relative
    if not path.exists():
        pytest.skip(f"reference file {relative} is not beside this checkout")
    return path
