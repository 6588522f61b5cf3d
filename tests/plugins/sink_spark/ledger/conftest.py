"""Fixtures for the tests of the ledger."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns ``fsync`` off: no test here cuts the power, and thousands of syncs on a busy disk take minutes. The tests
    of ``stores`` check the syncs.
    """
    monkeypatch.setattr(os, "fsync", lambda handle: None)
