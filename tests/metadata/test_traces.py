"""The life of brokers and partitions under the controller, as scripts with the records that come of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.metadata.controller_trace import trace_of

TRACES = Path(__file__).resolve().parents[1] / "traces"
REWRITE = "BLUMFELD_REWRITE_TRACES"


@pytest.mark.parametrize("name", sorted(path.stem for path in TRACES.glob("controller_*.txt")))
def test_a_script_comes_to_its_trace(name: str) -> None:
    """Read the diff before you rewrite it."""
    path = TRACES / f"{name}.txt"
    found = trace_of(path.read_text(), elr="_without_elr" not in name)
    if os.environ.get(REWRITE):
        path.write_text(found)
    assert found == path.read_text(), f"{REWRITE}=1 writes the trace anew"
