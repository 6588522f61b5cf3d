"""The rules of classic groups that a client depends on, as scripts that read like the protocol."""

from __future__ import annotations

from tests.plugins.groups_classic.classic_trace import Script
from tests.trace_files import check_trace, each_trace


@each_trace("classic")
def test_a_script_comes_to_its_trace(name: str) -> None:
    check_trace(name, Script().run)
