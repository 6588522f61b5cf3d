"""The sum of a sweep over seeds: for the table that ``blumfeld simulate`` prints, and for a program that reads it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from blumfeld_kit.simulation.swarm.run import SwarmReport

SECONDS_AN_HOUR = 3600.0


class Totals:
    """Sums over the seeds that kept every promise."""

    def __init__(self) -> None:
        self.seeds = 0
        self.virtual_s = 0.0
        self.converged_s_max = 0.0
        """Longest virtual time from a heal to the end of the last check."""
        self.delivered = 0
        """Messages that arrived."""
        self.progress = 0
        self.faults: Counter[str] = Counter()
        """Faults that happened, by class."""
        self.on: Counter[str] = Counter()
        """Seeds that turned a class on."""
        self.counts: Counter[str] = Counter()
        """The workload's own numbers."""

    @property
    def virtual_hours(self) -> float:
        """Virtual time of all seeds."""
        return self.virtual_s / SECONDS_AN_HOUR

    @property
    def without_faults(self) -> list[str]:
        """Classes that some seed turned on, and of which no fault happened."""
        return sorted(name for name in self.on if not self.faults[name])

    def add(self, report: SwarmReport) -> None:
        """Take one seed's report."""
        self.seeds += 1
        self.virtual_s += report.virtual_s
        self.converged_s_max = max(self.converged_s_max, report.converged_s)
        self.delivered += report.delivered
        self.progress += report.progress
        self.faults.update(report.faults)
        self.on.update(dict.fromkeys(report.on, 1))
        self.counts.update(report.counts)

    def plain(self) -> dict[str, Any]:
        """Return everything as plain values: the object that ``--report`` writes."""
        return {
            "seeds": self.seeds,
            "virtual_hours": round(self.virtual_hours, 3),
            "converged_s_max": round(self.converged_s_max, 1),
            "messages": self.delivered,
            "progress": self.progress,
            "faults": dict(sorted(self.faults.items())),
            "seeds_with_class": dict(sorted(self.on.items())),
            "counts": dict(sorted(self.counts.items())),
        }
