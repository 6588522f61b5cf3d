"""The report of a run: the result file, the table of faults, the distributions and the account."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import msgspec
from rich.markup import escape
from rich.table import Table

from campaigns.clients.load.acknowledged_records import Account
from campaigns.cluster.gaps import Gap

NOT_RECOVERED = "…"
LIMITS_S = (0.2, 0.6, 1.0)


class FaultReport(msgspec.Struct, frozen=True, kw_only=True):
    """One fault and what the producer felt of it."""

    fault: str
    nodes: tuple[int, ...]
    """Nodes that it hit; none if it was left out."""
    led: tuple[int, ...]
    """Partitions that each of them led at that moment."""
    controller: int
    """The controller at that moment."""
    at_s: float
    """Since the start of the load."""
    down_s: float
    """From the fault to the moment when its last node was started, resumed or connected again."""
    in_sync_s: float
    """From that moment until all replicas were in sync again, and all voters had caught up with the quorum."""
    gaps: tuple[Gap, ...]
    """By partition."""
    named_s: tuple[float | None, ...] = ()
    """For each broker that was not hit: from the fault to its first metadata with a leader that was not hit for every
    partition; None if it never gave one. Empty if no partition lost its leader."""
    notes: tuple[str, ...] = ()

    @property
    def longest_s(self) -> float:
        """The longest time without an acknowledgement of any one partition."""
        return max((gap.longest_s for gap in self.gaps), default=0.0)

    @property
    def named_everywhere_s(self) -> float:
        """The time until the last of the other brokers named the new leaders; infinite if one never did."""
        return max((math.inf if each is None else each for each in self.named_s), default=0.0)

    @property
    def recovered(self) -> bool:
        """Whether every partition was written again within the window."""
        return all(gap.recovered for gap in self.gaps)


class ContenderReport(msgspec.Struct, frozen=True, kw_only=True):
    """All faults of one cluster, and the account of its records."""

    contender: str
    commands: tuple[tuple[str, ...], ...]
    """The start command of each node."""
    faults: tuple[FaultReport, ...]
    steady_s: float
    """The longest gap before the first fault."""
    seconds: float
    sent: int
    given_up: dict[str, int]
    """Records that the producer failed to deliver, by error."""
    account: Account
    wrong: tuple[str, ...]
    said: dict[str, int] = {}
    """How often the logs of nodes on a ZooKeeper say so, by event."""

    @property
    def is_good(self) -> bool:
        """Whether nothing was lost, doubled or reordered, no fault was left out, and every partition recovered."""
        return not self.wrong and all(fault.nodes and fault.recovered for fault in self.faults)


class CampaignReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result file."""

    created: str
    partitions: int
    rate_per_s: float
    down_s: float
    layout: str
    """A key of :data:`campaigns.cluster.contenders.LAYOUTS`."""
    contenders: tuple[ContenderReport, ...]


def fault_table(report: ContenderReport) -> Table:
    """Return the table of one contender: a row for each fault."""
    table = Table(
        title=f"{report.contender}: {len(report.faults)} faults in {report.seconds:.0f} s; "
        f"longest gap before the first one {report.steady_s * 1000:.0f} ms",
        title_justify="left",
    )
    table.add_column("fault")
    table.add_column("nodes (partitions led)")
    for column in ("longest gap s", "from, to s", "recovered by partition s", "down s", "in sync after s"):
        table.add_column(column, justify="right")
    table.add_column("notes", overflow="fold")
    for fault in report.faults:
        nodes = ", ".join(
            f"{node}{'c' if node == fault.controller else ''} ({led})"
            for node, led in zip(fault.nodes, fault.led, strict=True)
        )
        table.add_row(
            fault.fault,
            nodes or "-",
            f"{'' if fault.recovered else '> '}{fault.longest_s:.2f}" if fault.gaps else "-",
            _from_to(fault),
            " ".join(f"{gap.recovered_s:.1f}" if gap.recovered else NOT_RECOVERED for gap in fault.gaps),
            f"{fault.down_s:.1f}",
            f"{fault.in_sync_s:.1f}",
            escape("; ".join(fault.notes)),
        )
    return table


def _from_to(fault: FaultReport) -> str:
    """Return when the longest gap began and ended, counted from the fault."""
    if not fault.gaps:
        return "-"
    longest = max(fault.gaps, key=lambda gap: gap.longest_s)
    ended = f"{longest.recovered_s:.1f}" if longest.recovered else NOT_RECOVERED
    return f"{longest.began_s:.1f}, {ended}"


def account_table(reports: Sequence[ContenderReport]) -> Table:
    """Return the account of all contenders' records."""
    table = Table(title="Records", title_justify="left")
    table.add_column("cluster")
    for column in ("faults", "sent", "acknowledged", "lost", "doubled", "out of order", "given up"):
        table.add_column(column, justify="right")
    for report in reports:
        account = report.account
        bad = (account.lost, account.doubled, account.disordered)
        hit = sum(bool(fault.nodes) for fault in report.faults)
        table.add_row(
            report.contender,
            *map(str, (hit, report.sent, account.acked)),
            *(f"[red]{count}[/]" if count else "0" for count in bad),
            str(sum(report.given_up.values())),
        )
    return table


def distribution_table(reports: Sequence[ContenderReport]) -> Table:
    """Return how the times of each class of fault are distributed, and those of all faults of one action together.

    A time that never came to its end counts as infinite.
    """
    table = Table(title="Distributions, s", title_justify="left")
    for column in ("cluster", "faults", "time"):
        table.add_column(column)
    for column in ("n", "p50", "p90", "p99", "max", *(f"≤ {limit:g}" for limit in LIMITS_S)):
        table.add_column(column, justify="right")
    for report in reports:
        for name, faults in _classes(report).items():
            for title, time_of in _TIMES.items():
                times = sorted(time for time in map(time_of, faults) if time is not None)
                if times:
                    table.add_row(report.contender, name, title, *_distribution(times))
    return table


def _gap_s(fault: FaultReport) -> float | None:
    if not fault.gaps:
        return None
    return fault.longest_s if fault.recovered else math.inf


_TIMES: Mapping[str, Callable[[FaultReport], float | None]] = {
    "new leaders in every broker's metadata": lambda fault: (
        fault.named_everywhere_s if fault.named_s else None
    ),
    "the client's longest gap": _gap_s,
}


def _classes(report: ContenderReport) -> dict[str, list[FaultReport]]:
    """Return the faults by name, and by action where it has several names."""
    classes: dict[str, list[FaultReport]] = {}
    for fault in report.faults:
        classes.setdefault(fault.fault, []).append(fault)
    for action in dict.fromkeys(fault.fault.partition("-")[0] for fault in report.faults):
        names = [name for name in classes if name.startswith(f"{action}-")]
        if len(names) > 1:
            classes[f"{action} (all)"] = [fault for name in names for fault in classes[name]]
    return classes


def _distribution(times: Sequence[float]) -> list[str]:
    """Return the cells of ascending times: their number, three percentiles, the last one, shares within the limits."""
    ranks = (math.ceil(share * len(times)) - 1 for share in (0.5, 0.9, 0.99, 1.0))
    shares = (sum(each <= limit for each in times) / len(times) for limit in LIMITS_S)
    return [str(len(times)), *(f"{times[rank]:.2f}" for rank in ranks), *(f"{share:.0%}" for share in shares)]
