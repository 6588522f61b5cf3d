"""The console that tables are printed on, and lines that several verbs print."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 240


def console() -> Console:
    """Returns a console on stdout, as wide as the terminal. Pipes and files have no width and get whole rows."""
    from rich.console import Console

    made = Console()
    return made if made.is_terminal or "COLUMNS" in os.environ else Console(width=PIPE_WIDTH)


def counted(number: int, noun: str, plural: str = "") -> str:
    """Returns a number with its noun: ``1 file``, ``1,200 files``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def count_lines(skipped: Mapping[str, int], passed_over: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Returns lines for people: offsets without a message by reason, passed-over messages by decoder and kind."""
    lines = [f"offsets without a message: {_counts(skipped)}"] if skipped else []
    return lines + [
        f"passed over by {decoder}: {_counts(kinds)}" for decoder, kinds in passed_over.items() if kinds
    ]


def _counts(counts: Mapping[str, int]) -> str:
    most_first = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{number:,} {name}" for name, number in most_first)
