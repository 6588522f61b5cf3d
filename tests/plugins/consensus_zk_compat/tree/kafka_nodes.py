"""Nodes that Apache Kafka 3.9.2 has written, from ../data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

DATA = Path(__file__).resolve().parents[1] / "data"


class KafkaNode(NamedTuple):
    """One node."""

    path: str
    data: bytes
    version: int = 0
    czxid: int = 0


def tree() -> list[KafkaNode]:
    """A whole tree, each node after the one above it."""
    return [
        KafkaNode(line["path"], (line["data"] or "").encode(), line["version"], line["czxid"])
        for line in _lines("tree.jsonl")
    ]


def encoded() -> list[KafkaNode]:
    """Nodes that aren't in the tree, as Kafka's own encoders write them."""
    return [KafkaNode(line["path"], line["data"].encode()) for line in _lines("encoded.jsonl")]


def _lines(name: str) -> Iterator[dict[str, Any]]:
    yield from map(json.loads, (DATA / name).read_text().splitlines())
