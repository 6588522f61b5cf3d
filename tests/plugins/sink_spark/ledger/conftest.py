"""For the tests of the ledger."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _no_sync(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody pulls the plug here, and thousands of syncs on a busy disk take minutes. ``test_store`` is what looks at
    them.
    """
    if request.module.__name__.rpartition(".")[2] != "test_store":
        monkeypatch.setattr(os, "fsync", lambda handle: None)
