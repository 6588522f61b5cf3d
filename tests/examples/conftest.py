"""For tests of the examples: a Python with the file's EXAMPLE, and its MANIFEST."""

from __future__ import annotations

from pathlib import Path

import pytest

from .stranger import Stranger, stranger_of


@pytest.fixture
def stranger(request: pytest.FixtureRequest, tmp_path: Path) -> Stranger:
    return stranger_of(request.module.EXAMPLE, request.module.MANIFEST, tmp_path)
