"""A cluster of servers that start at once, for tests of nodes as processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from blumfeld.testing.cluster import COMBINED, LOOPBACK, node_places
from blumfeld_kit.cluster import Cluster

SMALL = Path(__file__).parents[1] / "bench" / "small_server.py"
LINGERING = SMALL.with_name("lingering_server.py")


@contextmanager
def small_cluster(folder: Path) -> Iterator[Cluster]:
    """Yield three nodes that answer, and that name three brokers and one replica of a partition."""
    command = (sys.executable, "-S", str(SMALL), "{port}", "{folder}", "3")
    made = Cluster({COMBINED: command}, node_places([LOOPBACK] * 3), folder)
    try:
        made.start()
        yield made
    finally:
        made.stop()
