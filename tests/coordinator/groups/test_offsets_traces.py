"""The rules of committed offsets, and of those that a transaction commits (KIP-447), as scripts."""

from __future__ import annotations

from tests.coordinator.groups.offsets_trace import script_of
from tests.trace_files import check_trace, each_trace


@each_trace("offsets")
def test_a_script_comes_to_its_trace(name: str) -> None:
    check_trace(name, script_of(name)().run)
