"""``python -m blumfeld_kit.simulation --seeds 0-19 --hours 1``: runs seeds and prints their reports."""

from __future__ import annotations

import argparse
import sys
import time

from blumfeld_kit.simulation.run import Report, Simulation, SimulationFailure
from blumfeld_kit.simulation.seeds import seeds_of


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if every seed kept every promise, else 1."""
    parser = argparse.ArgumentParser(prog="python -m blumfeld_kit.simulation")
    parser.add_argument("--seeds", type=seeds_of, default=list(range(5)), help="3, 0-19 or 1,5,7-9")
    parser.add_argument("--hours", type=float, default=1.0, help="virtual hours for each seed")
    parser.add_argument("--storage", default="storage_local", help="the storage plug-in")
    wanted = parser.parse_args(arguments)
    print(
        f"{'seed':>6} {'hours':>6} {'killed':>6} {'power':>6} {'clean':>6} {'broken':>6} {'full':>5} {'produced':>8}",
        end="",
    )
    print(f" {'acked':>8} {'unsynced':>8} {'read':>8} {'commits':>7} {'lost':>4} {'real s':>6}  trace")
    reports: list[Report] = []
    began_s = time.monotonic()
    for seed in wanted.seeds:
        start_s = time.monotonic()
        try:
            report = Simulation(seed, wanted.hours, storage=wanted.storage).run()
        except SimulationFailure as failure:
            print(f"{seed:>6} FAILED: {failure}")
            return 1
        print(_row(report, time.monotonic() - start_s), flush=True)
        reports.append(report)
    print(_sum(reports, time.monotonic() - began_s))
    return 0


def _row(report: Report, took_s: float) -> str:
    counts = report.counts
    ends = f"{report.kills:>6} {report.power_cuts:>6} {report.clean_stops:>6}"
    troubles = f"{report.broken_connections:>6} {report.failed_writes:>5}"
    records = (
        f"{counts.produced:>8} {counts.acked:>8} {counts.unsynced:>8} {counts.read:>8} {counts.commits:>7}"
    )
    return f"{report.seed:>6} {report.hours:>6g} {ends} {troubles} {records} {0:>4} {took_s:>6.1f}  {report.digest}"


def _sum(reports: list[Report], took_s: float) -> str:
    crashes = sum(report.kills + report.power_cuts for report in reports)
    acked = sum(report.counts.acked for report in reports)
    hours = sum(report.hours for report in reports)
    return (
        f"{len(reports)} seeds, {hours:g} virtual hours in {took_s:.1f} s, {crashes} crashes, "
        f"{acked} records acknowledged, 0 lost, 0 doubled, 0 out of order"
    )


if __name__ == "__main__":
    sys.exit(main())
