"""The cost of a rebalance: eager, cooperative and KIP-848, this build beside Apache Kafka, with a report.

``python -m campaigns rebalance [--quick] [options of blumfeld bench rebalance]``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from campaigns.bench.compare import BENCH, parser
from campaigns.bench.rivals import kafka_text

WARM_UP_S = 10
"""Seconds of load before Kafka is measured."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, then draw the report; return the status of the first command that fails."""
    options, bench_options = parser("rebalance", __doc__).parse_known_args(arguments)
    options.results.mkdir(parents=True, exist_ok=True)
    out = options.results / "rebalance.json"
    theirs = kafka_text(options.peer.resolve(), "{settings}", warm_up_s=WARM_UP_S)
    measure = [*BENCH, "rebalance", theirs, "default --label blumfeld", "--out", str(out), *bench_options]
    draw = [*BENCH, "report", str(out), "--out", str(out.with_suffix(""))]
    return subprocess.call(measure) or subprocess.call(draw)


if __name__ == "__main__":
    sys.exit(main())
