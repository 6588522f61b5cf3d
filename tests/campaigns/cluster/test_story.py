"""A story whose step fails: no further step is taken, the groups end, and the failure is told."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from blumfeld.testing.process import NodeError, NodeProcess
from campaigns.clients.access import Access
from campaigns.cluster import story
from campaigns.cluster.story import Step, Story


class FailingStory(Story[NodeProcess]):
    """Its first step fails."""

    def __init__(self) -> None:
        super().__init__((), Access("127.0.0.1:1"), 1.0)
        self.asked: list[str] = []
        account = SimpleNamespace(acked=0, lost=0, doubled=0, disordered=0)
        load: Any = SimpleNamespace(
            wrong=[], ack_times=[], sent=0, finish=lambda _: None, account=lambda: account
        )
        promises = SimpleNamespace(wrong=[])
        groups: Any = SimpleNamespace(promises=promises, end=lambda: self.asked.append("groups end"))
        self.load, self.groups = load, groups

    def start(self) -> None:
        self.asked.append("start")

    def steps(self) -> Sequence[Step]:
        return (("first", self.fail), ("second", lambda: self.asked.append("second")))

    def fail(self) -> None:
        raise NodeError("node 2 did not start")


def test_a_step_that_fails_is_the_last_one_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story, "BEFORE_S", 0.0)
    failing = FailingStory()
    report = failing.run(failing.asked.append)
    assert failing.asked == ["start", "groups end"]
    assert report.wrong == ("NodeError('node 2 did not start')",)
    assert not report.is_good
