"""What a run of the rebalance bench saw: one JSON document, from which table, verdicts and plots are made."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from blumfeld.bench.rebalance.settings import Settings
from blumfeld.bench.result import Machine, Variant

FORMAT = 1


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Pauses of many, in seconds."""

    count: int
    paused: int
    """How many paused at all."""
    p50: float
    p99: float
    most: float
    total: float

    @classmethod
    def of(cls, pauses_ns: list[int]) -> Spread:
        """Of all of them, those without a pause too."""
        ordered = sorted(pauses_ns)
        if not ordered:
            return cls(count=0, paused=0, p50=0.0, p99=0.0, most=0.0, total=0.0)

        def at(share: float) -> float:
            return ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1e9

        return cls(
            count=len(ordered),
            paused=sum(one > 0 for one in ordered),
            p50=at(0.5),
            p99=at(0.99),
            most=ordered[-1] / 1e9,
            total=sum(ordered) / 1e9,
        )


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario of one cell in one round. Definitions stand in the package's docstring."""

    variant: str
    round: int
    protocol: str
    size: int
    """Of the group as it was formed."""
    scenario: str
    members: int
    """After it."""
    partitions: int
    session_s: float
    """What was left of the session of a killed member; 0 elsewhere. Not in the times."""
    stable_s: float
    converged_s: float
    known_s: float
    """From the event until the group had been stable for an interval: what ``cpu_s`` is of."""
    members_pause: Spread
    moved_pause: Spread
    pauses_ms: tuple[float, ...]
    """Of each member that stayed, sorted."""
    unowned_s: float
    """Over all partitions together."""
    cpu_s: float | None
    """Of the server for this rebalance, above what it uses at rest; None where it isn't known."""
    rest_cpu: float | None
    """CPU seconds a second at rest, of this cell."""
    rss_bytes: int | None
    driver_busy: float
    """Share of the time from the event to stable in which the driver had something to do."""
    contested: int
    """Partitions given to one member while another had them."""
    faults: dict[str, int]
    """Errors that a group in which nobody is late doesn't see."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """What could not be measured."""

    variant: str
    round: int
    where: str
    error: str


class RebalanceResult(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run."""

    experiment: Literal["rebalance"]
    """So that the file of another bench is none of these."""
    format: int = FORMAT
    blumfeld: str
    created: str
    machine: Machine
    settings: Settings
    rounds: int
    driver_first: bool | None = None
    """The driver ran before the server's threads (SCHED_RR). ``None`` in results of builds where it always did."""
    variants: tuple[Variant, ...]
    configs: dict[str, dict[str, str | None]]
    """By variant: what it answered when it was asked for its configuration."""
    samples: tuple[Sample, ...] = ()
    failures: tuple[Failure, ...] = ()
    interrupted: bool = False
    seconds: float = 0.0


def save_rebalance(result: RebalanceResult, path: Path) -> None:
    """One value a line, so that differences can be read."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")


def load_rebalance(data: bytes) -> RebalanceResult:
    """A saved run.

    :raises msgspec.ValidationError: it is none
    """
    return msgspec.json.decode(data, type=RebalanceResult)
