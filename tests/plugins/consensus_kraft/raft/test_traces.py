"""Whole stories of a quorum, as scripts with each message and effect that comes of them."""

from __future__ import annotations

from tests.plugins.consensus_kraft.raft.raft_trace import RaftTrace
from tests.trace_files import check_trace, each_trace, trace_names


@each_trace("raft")
def test_a_script_comes_to_its_trace(name: str) -> None:
    check_trace(name, RaftTrace().run)


def test_each_story_has_a_trace() -> None:
    assert len(trace_names("raft")) >= 7
