"""The outcome of each test, read from the events of ``go tool test2json``. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
from rich.table import Table

PASSED, FAILED, SKIPPED, NOT_RUN = "passed", "failed", "skipped", "not run"
VERDICTS = {"pass": PASSED, "fail": FAILED, "skip": SKIPPED}
REASON_LINES = 3


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of one test."""

    name: str
    verdict: str
    seconds: float = 0.0
    reason: str = ""
    """Its words about its failure, or why it was skipped."""


def outcomes_of(lines: Iterable[str], listed: Collection[str] = ()) -> list[Outcome]:
    """Return an outcome for each test and subtest of the events, and for each listed test.

    A test that began and did not end is failed: the process died, or its time was over. A listed test that did not
    begin is not run. Lines that are no events are left out.
    """
    verdicts: dict[str, tuple[str, float]] = {}
    printed: dict[str, list[str]] = {}
    for line in lines:
        event = _event(line)
        name = event.get("Test")
        if not name:
            continue
        printed.setdefault(name, [])
        if event.get("Action") == "output":
            printed[name].append(event.get("Output", ""))
        elif verdict := VERDICTS.get(event.get("Action", "")):
            verdicts[name] = (verdict, float(event.get("Elapsed", 0.0)))
    outcomes = [_outcome(name, verdicts.get(name), printed[name]) for name in printed]
    return outcomes + [Outcome(name, NOT_RUN) for name in sorted(set(listed) - printed.keys())]


def failed_tests(outcomes: Iterable[Outcome]) -> list[str]:
    """Return the names of tests that failed or were not run, without their subtests, in their order."""
    return [
        outcome.name
        for outcome in outcomes
        if outcome.verdict in (FAILED, NOT_RUN) and "/" not in outcome.name
    ]


def counts(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """Return how many tests came to each verdict; a subtest counts with its test."""
    whole = [outcome.verdict for outcome in outcomes if "/" not in outcome.name]
    return {verdict: whole.count(verdict) for verdict in (PASSED, SKIPPED, FAILED, NOT_RUN)}


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All runs of the suite against one cluster."""

    contender: str
    version: str
    """Version of franz-go."""
    records: int
    outcomes: tuple[Outcome, ...]
    """Outcomes of the tests and subtests in the run of all tests."""
    alone: tuple[Outcome, ...] = ()
    """Outcomes of the tests that failed or didn't run there, in a run with those tests only."""

    @property
    def is_good(self) -> bool:
        """Whether tests ran, and each that failed among the others passed without them."""
        return bool(self.outcomes) and not failed_tests(self.alone)


def table_of(reports: Sequence[Report]) -> Table:
    """Return the counts, one row a cluster."""
    table = Table(title="kgo's own tests", title_justify="left")
    for name in ("cluster", "tests", PASSED, SKIPPED, FAILED, NOT_RUN, "failed alone"):
        table.add_column(name, justify="left" if name == "cluster" else "right")
    for report in reports:
        totals = counts(report.outcomes)
        numbers = (sum(totals.values()), *totals.values(), len(failed_tests(report.alone)))
        table.add_row(report.contender, *map(str, numbers))
    return table


def lines_of(report: Report) -> list[tuple[str, str]]:
    """Return the verdict and a line for each test or subtest that did not pass, with what it said."""
    alone = {outcome.name: outcome.verdict for outcome in report.alone}
    return [
        (outcome.verdict, _line(outcome, alone)) for outcome in report.outcomes if outcome.verdict != PASSED
    ]


def _line(outcome: Outcome, alone: Mapping[str, str]) -> str:
    again = f", {alone[outcome.name]} alone" if outcome.name in alone else ""
    return f"{outcome.name} {outcome.verdict}{again}" + (f": {outcome.reason}" if outcome.reason else "")


def _event(line: str) -> dict[str, str]:
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def _outcome(name: str, ended: tuple[str, float] | None, printed: Sequence[str]) -> Outcome:
    if ended is None:
        last = (line.strip() for line in printed[-REASON_LINES:])
        return Outcome(name, FAILED, reason="it did not end: " + " / ".join(last))
    verdict, seconds = ended
    return Outcome(name, verdict, seconds, "" if verdict == PASSED else _reason(printed))


def _reason(printed: Sequence[str]) -> str:
    """Return the first lines that a test printed by ``t.Log``, ``t.Error`` or ``t.Skip``."""
    lines = (line.strip() for line in printed)
    said = [line for line in lines if "_test.go:" in line]
    return " / ".join(said[:REASON_LINES])
