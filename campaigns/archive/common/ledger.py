"""Reads the commit records as any tool may: JSON files under ``_commits``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path


def covered(root: Path) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """Returns (start, end) of all committed ranges, sorted, by topic and partition."""
    by_place: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for path in _paths(root):
        for item in json.loads(path.read_bytes())["ranges"]:
            by_place.setdefault((item["topic"], item["partition"]), []).append((item["start"], item["end"]))
    return {place: sorted(ranges) for place, ranges in by_place.items()}


def incomplete(root: Path, ends: Mapping[tuple[str, int], int]) -> list[str]:
    """Returns a line for each place where the commits overlap, leave a hole, or don't reach from 0 to the end."""
    wrong = []
    all_ranges = covered(root)
    for (topic, partition), end in ends.items():
        at = 0
        for start, stop in all_ranges.get((topic, partition), []):
            if start != at:
                wrong.append(f"{topic}-{partition}: a commit begins at {start}, the one before ends at {at}")
            at = stop
        if at != end:
            wrong.append(f"{topic}-{partition}: commits reach {at}, the partition {end}")
    return wrong


def commits(root: Path) -> int:
    """Returns the number of commit records."""
    return len(_paths(root))


def _paths(root: Path) -> list[Path]:
    """Returns the paths ``_commits/<query>/<batch>.json``. Other files in that folder aren't commits."""
    return sorted(path for path in (root / "_commits").glob("*/*.json") if path.stem.isdecimal())
