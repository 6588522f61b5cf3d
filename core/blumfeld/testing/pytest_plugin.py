"""Loaded by pytest through its entry point: the contract kits' assertions are rewritten, so that a failure says what it saw."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("blumfeld.testing.storage_contract", "blumfeld.testing.transport_contract")
