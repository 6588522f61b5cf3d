"""Programs and captures that can't lie in this tree: Apache Kafka, bare servers, a load generator, captures.

They are looked for in one folder, by default ``shared`` beside the checkout. ``BLUMFELD_REFERENCES`` or the option
``--references`` names another one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from campaigns import ROOT

VARIABLE = "BLUMFELD_REFERENCES"
"""Environment variable with the folder of reference programs."""
PEER_VARIABLE = "KAFKA_PEER"
"""Environment variable with the script that starts Apache Kafka, if it lies elsewhere."""

PLACES: Mapping[str, str] = {
    "peer": "peer/kafka/kafka-peer",
    "loadgen": "floor/loadgen.c",
    "floor_epoll": "floor/floor_epoll.py",
    "floor_ring": "floor/floor_ring.py",
    "capture": "market-data/hftbacktest/usdm/btcusdt_20240808.gz",
    "spot": "market-data/hftbacktest/spot/btcusdt_2024080*.gz",
}
"""Path of each reference in the folder, as a glob pattern."""


def default_folder() -> Path:
    """Return the folder that ``BLUMFELD_REFERENCES`` names, else ``shared`` beside the checkout."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else ROOT.parent / "shared"


def find_references(folder: Path) -> dict[str, tuple[str, ...]]:
    """Return the paths of each reference by its name; an absent one has none."""
    paths = {name: tuple(str(path) for path in sorted(folder.glob(place))) for name, place in PLACES.items()}
    peer = os.environ.get(PEER_VARIABLE)
    return {**paths, "peer": (peer,)} if peer else paths
