"""The rules of committed offsets, and of those that a transaction commits (KIP-447), as scripts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.coordinator.groups.offsets_trace import BothTypesScript, OffsetsScript
from tests.plugins.groups_classic.classic_trace import trace_of

TRACES = Path(__file__).resolve().parents[2] / "traces"
REWRITE = "BLUMFELD_REWRITE_TRACES"


def script_of(name: str) -> type[OffsetsScript]:
    """What runs the script of that name."""
    return BothTypesScript if name.startswith("offsets_consumer") else OffsetsScript


@pytest.mark.parametrize("name", sorted(path.stem for path in TRACES.glob("offsets_*.txt")))
def test_a_script_comes_to_its_trace(name: str) -> None:
    """Read the diff before you rewrite it."""
    path = TRACES / f"{name}.txt"
    found = trace_of(path.read_text(), script_of(name))
    if os.environ.get(REWRITE):
        path.write_text(found)
    assert found == path.read_text(), f"{REWRITE}=1 writes the trace anew"
