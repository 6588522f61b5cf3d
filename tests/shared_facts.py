"""Where the reference facts lie, if this checkout stands beside them; tests skip with a reason where it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

_SHARED = Path(__file__).resolve().parents[2] / "shared"


def shared_path(relative: str) -> Path:
    """The path of a reference file, or a skip that says which file is absent."""
    path = _SHARED / relative
    if not path.exists():
        pytest.skip(f"reference file {relative} is not beside this checkout")
    return path
