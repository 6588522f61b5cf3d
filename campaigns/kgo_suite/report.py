"""The report of the suite: a line a failure, the table of counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from rich.table import Table

from campaigns.kgo_suite.events import FAILED, NOT_RUN, PASSED, SKIPPED, Outcome, counts, failed_tests


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
        found = counts(report.outcomes)
        numbers = (sum(found.values()), *found.values(), len(failed_tests(report.alone)))
        table.add_row(report.contender, *map(str, numbers))
    return table


def lines_of(report: Report) -> list[tuple[str, str]]:
    """Return the verdict and a line for each test or subtest that did not pass, with what it said."""
    alone = {one.name: one.verdict for one in report.alone}
    return [(one.verdict, _line(one, alone)) for one in report.outcomes if one.verdict != PASSED]


def _line(one: Outcome, alone: Mapping[str, str]) -> str:
    again = f", {alone[one.name]} alone" if one.name in alone else ""
    return f"{one.name} {one.verdict}{again}" + (f": {one.reason}" if one.reason else "")
