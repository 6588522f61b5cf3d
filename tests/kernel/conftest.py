"""For tests of the kernel: the journal of the fakes is each test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kernel.fakes import JOURNAL


@pytest.fixture(autouse=True)
def _empty_journal() -> Iterator[None]:
    yield
    JOURNAL.lines.clear()
    JOURNAL.failing.clear()
