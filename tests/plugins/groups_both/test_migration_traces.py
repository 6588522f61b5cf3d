"""The rules by which a group goes from one protocol to the other (KIP-848), as scripts that read like it."""

from __future__ import annotations

import os

import pytest

from tests.plugins.groups_both.migration_trace import MigrationScript
from tests.plugins.groups_classic.classic_trace import trace_of
from tests.plugins.groups_classic.test_traces import REWRITE, TRACES


@pytest.mark.parametrize("name", sorted(path.stem for path in TRACES.glob("migration_*.txt")))
def test_a_script_comes_to_its_trace(name: str) -> None:
    """Read the diff before you rewrite it."""
    path = TRACES / f"{name}.txt"
    found = trace_of(path.read_text(), MigrationScript)
    if os.environ.get(REWRITE):
        path.write_text(found)
    assert found == path.read_text(), f"{REWRITE}=1 writes the trace anew"
