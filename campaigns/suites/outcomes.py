"""Outcomes of the tests of a suite, and the report of all its runs against one cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from rich.table import Table

PASSED, FAILED, SKIPPED, NOT_RUN = "passed", "failed", "skipped", "not run"


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of one test. A part of a test has the test's name, a slash and its own."""

    name: str
    verdict: str
    seconds: float = 0.0
    reason: str = ""
    """Its words about its failure, or why it was skipped."""


def failed_tests(outcomes: Iterable[Outcome]) -> list[str]:
    """Return the names of tests that failed or were not run, without their parts, in their order."""
    return [
        outcome.name
        for outcome in outcomes
        if outcome.verdict in (FAILED, NOT_RUN) and "/" not in outcome.name
    ]


def counts(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """Return how many tests came to each verdict; a part counts with its test."""
    whole = [outcome.verdict for outcome in outcomes if "/" not in outcome.name]
    return {verdict: whole.count(verdict) for verdict in (PASSED, SKIPPED, FAILED, NOT_RUN)}


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All runs of a suite against one cluster."""

    contender: str
    version: str
    """Version of the project whose suite it is."""
    options: str
    """The size of the run, in words of the suite."""
    outcomes: tuple[Outcome, ...]
    """Outcomes of the tests and their parts in the run of all tests."""
    alone: tuple[Outcome, ...] = ()
    """Outcomes of the tests that failed or didn't run there, in a run with those tests only."""

    @property
    def is_good(self) -> bool:
        """Whether tests ran, and each that failed among the others passed without them."""
        return bool(self.outcomes) and not failed_tests(self.alone)


def table_of(title: str, reports: Sequence[Report]) -> Table:
    """Return the counts, one row a cluster."""
    table = Table(title=title, title_justify="left")
    for name in ("cluster", "tests", PASSED, SKIPPED, FAILED, NOT_RUN, "failed alone"):
        table.add_column(name, justify="left" if name == "cluster" else "right")
    for report in reports:
        totals = counts(report.outcomes)
        numbers = (sum(totals.values()), *totals.values(), len(failed_tests(report.alone)))
        table.add_row(report.contender, *map(str, numbers))
    return table


def lines_of(report: Report) -> list[tuple[str, str]]:
    """Return the verdict and a line for each test or part that did not pass, with what it said."""
    alone = {outcome.name: outcome.verdict for outcome in report.alone}
    return [
        (outcome.verdict, _line(outcome, alone)) for outcome in report.outcomes if outcome.verdict != PASSED
    ]


def _line(outcome: Outcome, alone: Mapping[str, str]) -> str:
    again = f", {alone[outcome.name]} alone" if outcome.name in alone else ""
    return f"{outcome.name} {outcome.verdict}{again}" + (f": {outcome.reason}" if outcome.reason else "")
