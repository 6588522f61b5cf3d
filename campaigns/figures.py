"""Shared parts of measurements: options, percentiles, ratios with an interval, heads of tables, files of results."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from rich.table import Table

from blumfeld_bench.statistics.intervals import paired

BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
"""Marks of the place on a page that a campaign fills."""


def options(
    name: str, doc: str | None, *, peer: bool = True, rounds: int | None = 3
) -> argparse.ArgumentParser:
    """Return a parser with the options that campaigns have in common.

    :param peer: whether Apache Kafka can be measured beside this build
    :param rounds: their number by default; None where nothing is repeated
    """
    parser = argparse.ArgumentParser(prog=f"python -m campaigns {name}", description=doc)
    if peer:
        parser.add_argument("--peer", type=Path, help="start script of Apache Kafka: PEER start DIR PORT")
    if rounds is not None:
        parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--out", "--json", type=Path, help="write every figure as JSON")
    return parser


def table(title: str, words: Sequence[str], figures: Sequence[str]) -> Table:
    """Return an empty table whose columns of words come before those of figures."""
    made = Table(title=title, title_justify="left")
    for column in words:
        made.add_column(column, overflow="fold")
    for column in figures:
        made.add_column(column, justify="right", overflow="fold")
    return made


def median(rows: Iterable[object], field: str) -> float:
    """Return the median of one field."""
    return float(statistics.median(getattr(row, field) for row in rows))


def percentile(values: Sequence[float], share: float) -> float:
    """Return a percentile; ``share`` is from 0 to 1. Without values it is 0."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """Return their times divided by ours over the same rounds, and the 95 % interval.

    With too few rounds for an interval it holds everything.
    """
    comparison = paired(ours, theirs)
    if comparison is None:
        return statistics.median(theirs) / statistics.median(ours), (0.0, float("inf"))
    return comparison.ratio, comparison.interval()


def put_between(page: str, found: str) -> str:
    """Return the page with what was found in the place of what stands between its marks.

    :raises ValueError: the page has no marks
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(
            f"the page needs the lines {BEGIN} and {END}, and has no place for figures without them"
        )
    return f"{before}{BEGIN}\n{found}\n{END}{after}"


def save(path: Path | None, value: object) -> None:
    """Write a result as JSON, unless there is no path; the file is replaced whole or not at all."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(path.name + ".part")
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")
        draft.replace(path)
