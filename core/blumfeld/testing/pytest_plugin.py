"""Loaded by pytest through its entry point: assertions of the contract kits are rewritten, so that a failure
shows values.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("blumfeld.testing.storage_contract", "blumfeld.testing.transport_contract")
