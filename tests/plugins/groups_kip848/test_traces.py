"""The rules of KIP-848 groups that a client depends on, as scripts that read like the protocol."""

from __future__ import annotations

from tests.plugins.groups_kip848.consumer_trace import ConsumerScript
from tests.trace_files import check_trace, each_trace


@each_trace("kip848")
def test_a_script_comes_to_its_trace(name: str) -> None:
    check_trace(name, ConsumerScript().run)
