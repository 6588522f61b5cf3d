"""The cost of a rebalance: eager, cooperative and KIP-848, this build beside Apache Kafka, with a report.

``python -m campaigns rebalance [--quick] [options of blumfeld bench rebalance]``.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

WARM_UP_S = 10
"""Seconds of load before Kafka is measured."""


def variants(peer: Path) -> list[str]:
    """Return the variants for ``blumfeld bench rebalance``: Kafka and this build."""
    start = f"{shlex.quote(str(peer))} start {{folder}}/data {{port}} {{settings}}"
    theirs = f"kafka://127.0.0.1:0 --start {shlex.quote(start)} --warm-up {WARM_UP_S} --label kafka"
    return [theirs, "default --label blumfeld"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, then draw the report; return the status of the first command that fails."""
    parser = argparse.ArgumentParser(prog="python -m campaigns rebalance", description=__doc__)
    parser.add_argument("--peer", type=Path, required=True, help="script that starts Kafka")
    parser.add_argument("--results", type=Path, default=Path("bench-results"), help="folder of the results")
    asked, options = parser.parse_known_args(arguments)
    asked.results.mkdir(parents=True, exist_ok=True)
    bench, out = [sys.executable, "-m", "blumfeld.cli.main", "bench"], asked.results / "rebalance.json"
    measure = [*bench, "rebalance", *variants(asked.peer.resolve()), "--out", str(out), *options]
    draw = [*bench, "report", str(out), "--out", str(out.with_suffix(""))]
    return subprocess.call(measure) or subprocess.call(draw)


if __name__ == "__main__":
    sys.exit(main())
