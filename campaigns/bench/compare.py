"""Every shipped workload of ``blumfeld bench``, this build beside Apache Kafka 4.3.1 and 4.4.0.

``python -m campaigns compare [--workloads ticks,firehose] [options of blumfeld bench]``.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from blumfeld_bench.workload import load_workload, shipped
from campaigns.cluster.contenders import kafka_settings

VERSIONS = ("4.3.1", "4.4.0")
"""Releases of Apache Kafka that this build is compared with."""
WARM_UP_S = 25
"""Seconds of load before Kafka is measured: its JIT has compiled the path of a request by then."""


def variants(peer: Path, nodes: int = 1) -> list[str]:
    """Return what ``blumfeld bench`` is given: this build, and each release of Kafka.

    :param nodes: number of nodes of each cluster; 1 is a single server
    """
    cluster = f" --nodes {nodes}" if nodes > 1 else ""
    found = [f"default --label blumfeld{cluster}"]
    settings = " ".join(kafka_settings()) if nodes > 1 else ""
    for version in VERSIONS:
        start = f"env KAFKA_PEER_VERSION={version} {shlex.quote(str(peer))} start {{folder}}/data {{port}} {settings}"
        label = f"Kafka {version}"
        found.append(
            f"kafka://127.0.0.1:0 --start {shlex.quote(start.strip())} --warm-up {WARM_UP_S} "
            f"--label {shlex.quote(label)}{cluster}"
        )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one workload after the other; return the status of the first that fails."""
    parser = argparse.ArgumentParser(prog="python -m campaigns compare", description=__doc__)
    parser.add_argument("--peer", type=Path, required=True, help="script that starts Kafka")
    parser.add_argument("--workloads", default=",".join(shipped()), help="by comma; all that ship by default")
    parser.add_argument("--results", type=Path, default=Path("bench-results"), help="folder of the results")
    asked, options = parser.parse_known_args(arguments)
    asked.results.mkdir(parents=True, exist_ok=True)
    for workload in asked.workloads.split(","):
        out = asked.results / f"{workload}.json"
        given = variants(asked.peer.resolve(), load_workload(workload).topic.replication_factor)
        command = [sys.executable, "-m", "blumfeld.cli.main", "bench", *given]
        status = subprocess.call([*command, "--workload", workload, "--out", str(out), *options])
        if status:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
