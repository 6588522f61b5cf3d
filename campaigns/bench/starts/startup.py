"""Start-up time to the first ApiVersions answer, and resident memory five seconds later; rivals interleaved.

``python -m campaigns startup --peer kafka-peer``. The second start of each round is one on existing data.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from blumfeld.testing import EmbeddedBroker
from blumfeld_bench.plan.variants import VariantSpec
from blumfeld_bench.terminal import make_console
from campaigns import figures
from campaigns.bench.rivals import rivals, start

IDLE_S = 5.0
EMBEDDED_STARTS = 20


def main() -> None:
    """Parse arguments, run, print the table."""
    options = figures.options("startup", __doc__).parse_args()
    # Without this, a source that was changed since its bytecode was written is compiled again at each start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    console = make_console()
    samples = _measure(rivals(options.peer), options.rounds)
    console.print(_table(samples, options.rounds))
    figures.save(options.out, samples)
    for storage in ("storage_memory", "storage_local"):
        console.print(
            f"embedded, {storage}: median of {EMBEDDED_STARTS} starts {embedded_ms(storage):.1f} ms"
        )


def embedded_ms(storage: str) -> float:
    """Return the median start of an embedded broker in this process, in ms; the first start, which imports, doesn't
    count.
    """
    took = []
    for _ in range(EMBEDDED_STARTS + 1):
        began = time.perf_counter()
        with EmbeddedBroker(storage=storage):
            took.append(time.perf_counter() - began)
    return statistics.median(took[1:]) * 1000


def _measure(specs: Sequence[VariantSpec], rounds: int) -> dict[str, list[tuple[float, int]]]:
    samples: dict[str, list[tuple[float, int]]] = {spec.label: [] for spec in specs}
    with tempfile.TemporaryDirectory(prefix="blumfeld-startup-") as folder:
        for number in range(rounds + 1):
            for spec in specs:
                server = start(spec, Path(folder) / f"{spec.label}-{number}")
                time.sleep(IDLE_S)
                if number:  # the first round writes bytecode and fills the page cache
                    samples[spec.label].append((server.ready_s, server.totals().rss_bytes))
                server.stop()
    return samples


def _table(samples: dict[str, list[tuple[float, int]]], rounds: int) -> Table:
    title = f"Start-up, medians of {rounds} interleaved rounds"
    columns = ("first answer s", "of the last", "idle RSS MB", "of the last")
    shown = figures.table(title, ("server",), columns)
    middle = {
        name: (statistics.median(s for s, _ in series), statistics.median(rss for _, rss in series) / 1e6)
        for name, series in samples.items()
    }
    *_, (last_s, last_rss) = middle.values()
    for name, (seconds, rss) in middle.items():
        shown.add_row(
            name, f"{seconds:.3f}", f"{seconds / last_s:.3f}×", f"{rss:.0f}", f"{rss / last_rss:.3f}×"
        )
    return shown


if __name__ == "__main__":
    main()
