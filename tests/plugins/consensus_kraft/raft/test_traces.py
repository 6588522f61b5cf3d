"""Whole stories of a quorum, as scripts with each message and effect that comes of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.plugins.consensus_kraft.raft.raft_trace import trace_of

TRACES = Path(__file__).resolve().parents[3] / "traces"
REWRITE = "BLUMFELD_REWRITE_TRACES"


@pytest.mark.parametrize("name", sorted(path.stem for path in TRACES.glob("raft_*.txt")))
def test_a_script_comes_to_its_trace(name: str) -> None:
    """Read the diff before you rewrite it."""
    path = TRACES / f"{name}.txt"
    found = trace_of(path.read_text())
    if os.environ.get(REWRITE):
        path.write_text(found)
    assert found == path.read_text(), f"{REWRITE}=1 writes the trace anew"


def test_each_story_has_a_trace() -> None:
    """A glob that finds nothing would be green."""
    assert len(list(TRACES.glob("raft_*.txt"))) >= 7
