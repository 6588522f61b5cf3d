"""The report of a broker's kills, and its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from rich.table import Table

from campaigns.clients.load.acknowledged_records import Account

COLUMNS = (
    *("seed", "kills", "acked", "lost", "doubled", "out of order"),
    *("commits acked", "gone back", "skipped", "again", "recovery ms", "s"),
)


class KillReport(msgspec.Struct):
    """The rounds of one seed."""

    kills: dict[str, int]
    account: Account
    commits: int
    went_back: int
    skipped: int
    again: int
    """Records that a group got more than once, which nobody promised that it doesn't."""
    recovery_ms: float
    """Median, from the start of the process until every group answered what it has committed."""
    seconds: float
    wrong: list[str]


def table(reports: Mapping[int, KillReport]) -> Table:
    """Return a row for each seed, and the sum."""
    rows = Table(
        title="kill -9 of a broker under load, with classic and KIP-848 groups", title_justify="left"
    )
    for column in COLUMNS:
        rows.add_column(column, justify="left" if column == "kills" else "right")
    for seed, report in reports.items():
        kills = ", ".join(f"{count} {kind}" for kind, count in report.kills.items())
        rows.add_row(str(seed), kills, *_numbers([report]), end_section=seed == list(reports)[-1])
    everything = list(reports.values())
    rows.add_row("all", str(sum(sum(report.kills.values()) for report in everything)), *_numbers(everything))
    return rows


def _numbers(reports: Sequence[KillReport]) -> list[str]:
    sums = [
        *(sum(getattr(report.account, name) for report in reports) for name in Account.__struct_fields__),
        *(
            sum(getattr(report, name) for report in reports)
            for name in ("commits", "went_back", "skipped", "again")
        ),
    ]
    slowest = max((report.recovery_ms for report in reports), default=0.0)
    return [*map(str, sums), f"{slowest:.0f}", f"{sum(report.seconds for report in reports):.0f}"]
