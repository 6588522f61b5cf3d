"""Start-up time to the first ApiVersions answer, and resident memory five seconds later; rivals interleaved.

``python -m campaigns startup --peer kafka-peer``. The second start of each round is one on existing data.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from blumfeld.testing import EmbeddedBroker
from campaigns.bench.rivals import Rival, kafka, this_build

IDLE_S = 5.0
EMBEDDED_STARTS = 20


def main() -> None:
    """Parse arguments, run, print the table."""
    parser = argparse.ArgumentParser(description="Start-up time and idle memory, rivals interleaved.")
    parser.add_argument("--peer", type=Path, help="start script of Apache Kafka: PEER start DIR PORT")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rivals = [this_build()] + ([kafka(options.peer.resolve())] if options.peer else [])
    # Without this, a source that was changed since its bytecode was written is compiled again at each start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    console = Console()
    console.print(_table(rivals, _measure(rivals, options.rounds), options.rounds))
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


def _measure(rivals: list[Rival], rounds: int) -> dict[str, list[tuple[float, int]]]:
    samples: dict[str, list[tuple[float, int]]] = {rival.name: [] for rival in rivals}
    with tempfile.TemporaryDirectory(prefix="blumfeld-startup-") as folder:
        for number in range(rounds + 1):
            for rival in rivals:
                server = rival.start(Path(folder) / f"{rival.name}-{number}")
                time.sleep(IDLE_S)
                if number:  # the first round writes bytecode and fills the page cache
                    samples[rival.name].append((server.ready_s, server.rss_bytes()))
                server.stop()
    return samples


def _table(rivals: list[Rival], samples: dict[str, list[tuple[float, int]]], rounds: int) -> Table:
    table = Table(title=f"Start-up, medians of {rounds} interleaved rounds", title_justify="left")
    for column in ("server", "first answer s", "of the last", "idle RSS MB", "of the last"):
        table.add_column(column, justify="left" if column == "server" else "right")
    middle = {
        name: (statistics.median(s for s, _ in series), statistics.median(rss for _, rss in series) / 1e6)
        for name, series in samples.items()
    }
    last = middle[rivals[-1].name]
    for name, (seconds, rss) in middle.items():
        table.add_row(
            name, f"{seconds:.3f}", f"{seconds / last[0]:.3f}×", f"{rss:.0f}", f"{rss / last[1]:.3f}×"
        )
    return table


if __name__ == "__main__":
    main()
