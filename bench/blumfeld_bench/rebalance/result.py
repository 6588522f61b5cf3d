"""The result of the rebalance bench: one JSON document, from which table, verdicts and plots are made."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from blumfeld_bench.rebalance.settings import Settings
from blumfeld_bench.result import Machine, Variant

FORMAT = 1


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Distribution of many pauses, in seconds."""

    count: int
    paused: int
    """Number of members or partitions that paused at all."""
    p50: float
    p99: float
    most: float
    total: float

    @classmethod
    def of(cls, pauses_ns: list[int]) -> Spread:
        """Summarise pauses; members or partitions without a pause are in the list as 0."""
        ordered = sorted(pauses_ns)
        if not ordered:
            return cls(count=0, paused=0, p50=0.0, p99=0.0, most=0.0, total=0.0)

        def at(share: float) -> float:
            return ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1e9

        return cls(
            count=len(ordered),
            paused=sum(pause > 0 for pause in ordered),
            p50=at(0.5),
            p99=at(0.99),
            most=ordered[-1] / 1e9,
            total=sum(ordered) / 1e9,
        )


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario of one cell in one round. The package's docstring defines the terms."""

    variant: str
    round: int
    protocol: str
    size: int
    """Number of members with which the group was formed."""
    scenario: str
    members: int
    """Number of members after the scenario."""
    partitions: int
    session_s: float
    """Rest of a killed member's session at the kill, 0 elsewhere. Not part of the times."""
    stable_s: float
    converged_s: float
    known_s: float
    """Time from the event until the group had been stable for an interval: the period of ``cpu_s``."""
    members_pause: Spread
    moved_pause: Spread
    pauses_ms: tuple[float, ...]
    """Pause of each member that stayed, sorted."""
    unowned_s: float
    """Time without an owner, summed over all partitions."""
    cpu_s: float | None
    """CPU time of the server for this rebalance, above its use at rest; None where it isn't known."""
    rest_cpu: float | None
    """CPU seconds a second at rest, in this cell."""
    rss_bytes: int | None
    driver_busy: float
    """Share of the time from the event to stable in which the driver had something to do."""
    contested: int
    """Number of partitions given to one member while another had them."""
    faults: dict[str, int]
    """Counts of errors that don't occur in a group whose members are all in time."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A measurement that failed."""

    variant: str
    round: int
    where: str
    error: str


class RebalanceResult(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run."""

    experiment: Literal["rebalance"]
    """Marks the file as a result of this bench: the other one's results don't have it."""
    format: int = FORMAT
    blumfeld: str
    created: str
    machine: Machine
    settings: Settings
    rounds: int
    driver_first: bool | None = None
    """The driver ran before the server's threads (SCHED_RR). ``None`` in results of builds that always did so."""
    variants: tuple[Variant, ...]
    configs: dict[str, dict[str, str | None]]
    """Configuration that each variant reported."""
    samples: tuple[Sample, ...] = ()
    failures: tuple[Failure, ...] = ()
    interrupted: bool = False
    seconds: float = 0.0


def save_rebalance(result: RebalanceResult, path: Path) -> None:
    """Write a result, one value a line, so that files can be compared by diff."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")


def load_rebalance(data: bytes) -> RebalanceResult:
    """Parse a saved run.

    :raises msgspec.ValidationError: the data is no result of this bench
    """
    return msgspec.json.decode(data, type=RebalanceResult)
