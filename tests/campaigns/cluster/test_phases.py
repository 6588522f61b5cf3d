"""The end of a run in phases: the groups end whatever came before, and what they broke is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from campaigns.clients.load.log_contents import UnreadableError
from campaigns.cluster.phases import Phases

ENDS = {("t", 0): 7}


class Run:
    """Stands for the load and the groups, and notes what is asked of them."""

    def __init__(self, *, readable: bool = True) -> None:
        self.readable = readable
        self.wrong: list[str] = []
        self.promises = SimpleNamespace(wrong=["a record was skipped"])
        self.asked: list[str] = []

    def finish(self, given: Any) -> None:
        self.asked.append(f"finish {given}")

    def ends(self) -> dict[tuple[str, int], int]:
        if not self.readable:
            raise UnreadableError("t-0 at 3")
        return ENDS

    def end(self) -> None:
        self.asked.append("end")


def finished(run: Run, *, is_whole: bool) -> list[str]:
    """Finish a run, and return what is wrong with it."""
    stands: Any = run
    Phases(stands, run.asked.append).finish(stands, is_whole=is_whole)
    return run.wrong


def test_groups_of_a_whole_run_get_to_the_end_of_the_log() -> None:
    run = Run()
    assert finished(run, is_whole=True) == ["a record was skipped"]
    assert run.asked == ["finish 60.0", f"finish {ENDS}", "end"]


def test_groups_of_a_run_that_broke_off_end_at_once() -> None:
    run = Run()
    assert finished(run, is_whole=False) == ["a record was skipped"]
    assert run.asked == ["finish 5.0", "end"]


@pytest.mark.parametrize("is_whole", [True, False])
def test_groups_end_if_the_log_cannot_be_read(is_whole: bool) -> None:
    run = Run(readable=False)
    told = finished(run, is_whole=is_whole)
    assert ("the groups' end is unknown: t-0 at 3" in told) == is_whole
    assert run.asked[-1] == "end"
