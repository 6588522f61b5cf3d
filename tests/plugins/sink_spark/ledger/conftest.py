"""For the tests of the ledger."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test of this folder cuts the power, and thousands of syncs on a busy disk take minutes. The tests of
    ``stores`` look at the syncs.
    """
    monkeypatch.setattr(os, "fsync", lambda handle: None)
