"""A cluster that is changed in phases under load: what each phase cost, and the account of all records at the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import attrs
from rich.console import Console

from campaigns.clients.load.groups import Groups
from campaigns.clients.load.load import Load
from campaigns.clients.load.log_contents import UnreadableError
from campaigns.cluster.gaps import gap_of
from campaigns.figures import save
from campaigns.terminal import print_wrong

SETTLE_S = 2.0
"""Seconds of load behind a phase: its last gap ends in them."""
FINISH_S, CUT_SHORT_S = 60.0, 5.0
"""Longest wait for open acknowledgements, behind all phases and behind a phase that failed."""
WRONG_MAX = 100


@attrs.frozen
class Phase:
    """What one phase cost."""

    name: str
    seconds: float
    gap_s: float
    """Longest time without an acknowledgement, over all partitions."""


@attrs.frozen
class Report:
    """The result file."""

    phases: tuple[Phase, ...]
    sent: int
    acked: int
    lost: int
    doubled: int
    disordered: int
    wrong: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        """Whether every promise was kept."""
        return not (self.lost or self.doubled or self.disordered or self.wrong)

    @property
    def told(self) -> str:
        """The account in a line."""
        return (
            f"{self.acked} of {self.sent} acknowledged; lost {self.lost}, doubled {self.doubled}, "
            f"out of order {self.disordered}"
        )


class Phases:
    """The phases of one run, under one load.

    :param say: gets a line for each phase
    """

    def __init__(self, load: Load, say: Callable[[str], None]) -> None:
        self._load = load
        self._say = say
        self._done: list[Phase] = []

    def run(self, name: str, work: Callable[[], None]) -> None:
        """Do one phase, and note what it cost."""
        began = time.monotonic()
        work()
        time.sleep(SETTLE_S)
        ended = time.monotonic()
        gap_s = max(gap_of(times, began, ended).longest_s for times in self._load.ack_times)
        self._done.append(Phase(name, round(ended - began, 1), round(gap_s, 2)))
        self._say(f"{name}: {ended - began:.1f} s, longest time without an acknowledgement {gap_s:.2f} s")

    def finish(self, groups: Groups, *, is_whole: bool) -> None:
        """End the load and the groups.

        :param is_whole: whether all phases were run: the groups then get to the end of the log first
        """
        load = self._load
        load.finish(FINISH_S if is_whole else CUT_SHORT_S)
        try:
            if is_whole:
                groups.finish(load.ends())
        except UnreadableError as error:
            load.wrong.append(f"the groups' end is unknown: {error}")
        finally:
            groups.end()
        load.wrong.extend(groups.promises.wrong)

    def report(self) -> Report:
        """Make the account. The load has finished."""
        account = self._load.account()
        return Report(
            phases=tuple(self._done),
            sent=self._load.sent,
            acked=account.acked,
            lost=account.lost,
            doubled=account.doubled,
            disordered=account.disordered,
            wrong=tuple(self._load.wrong[:WRONG_MAX]),
        )


def tell(console: Console, report: Report, out: Path | None) -> int:
    """Print the account and what is wrong, and save all of it. Return 0 if every promise was kept, else 1."""
    console.print(report.told)
    print_wrong(console, report.wrong)
    save(out, report)
    return 0 if report.is_good else 1
