"""Every shipped workload of ``blumfeld bench``, this build beside Apache Kafka 4.3.1 and 4.4.0.

``python -m campaigns compare [--workloads ticks,firehose] [options of blumfeld bench]``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from blumfeld_bench.workload import load_workload, shipped
from campaigns.bench.rivals import kafka_text
from campaigns.cluster.contenders import kafka_settings

VERSIONS = ("4.3.1", "4.4.0")
"""Releases of Apache Kafka that this build is compared with."""
BENCH = (sys.executable, "-m", "blumfeld.cli.main", "bench")


def variants(peer: Path, nodes: int = 1) -> list[str]:
    """Return what ``blumfeld bench`` is given: this build, and each release of Kafka.

    :param nodes: number of nodes of each cluster; 1 is a single server
    """
    settings = " ".join(kafka_settings()) if nodes > 1 else ""
    kafkas = [
        kafka_text(peer, settings, label=f"Kafka {version}", version=version, nodes=nodes)
        for version in VERSIONS
    ]
    return [f"default --label blumfeld{f' --nodes {nodes}' if nodes > 1 else ''}", *kafkas]


def parser(name: str, doc: str | None) -> argparse.ArgumentParser:
    """Return a parser of the options that are not the bench's own."""
    made = argparse.ArgumentParser(prog=f"python -m campaigns {name}", description=doc)
    made.add_argument("--peer", type=Path, required=True, help="script that starts Kafka")
    made.add_argument("--results", type=Path, default=Path("bench-results"), help="folder of the results")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one workload after the other; return the status of the first that fails."""
    options = parser("compare", __doc__)
    options.add_argument(
        "--workloads", default=",".join(shipped()), help="by comma; all that ship by default"
    )
    choices, bench_options = options.parse_known_args(arguments)
    choices.results.mkdir(parents=True, exist_ok=True)
    for workload in choices.workloads.split(","):
        out = choices.results / f"{workload}.json"
        given = variants(choices.peer.resolve(), load_workload(workload).topic.replication_factor)
        command = [*BENCH, *given, "--workload", workload, "--out", str(out), *bench_options]
        status = subprocess.call(command)
        if status:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
