"""Scripts under ``tests/traces``: commands, and below each one all that comes of it.

A line that begins with ``> `` is a command, an indented one says what came of it, any other is a comment.
``BLUMFELD_REWRITE_TRACES=1 pytest …`` writes the files anew: read the diff.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

TRACES = Path(__file__).parent / "traces"
REWRITE = "BLUMFELD_REWRITE_TRACES"


def trace_names(prefix: str) -> list[str]:
    """The traces of one kind, without their ending."""
    names = sorted(path.stem for path in TRACES.glob(f"{prefix}_*.txt"))
    assert names, prefix
    return names


def each_trace(prefix: str) -> pytest.MarkDecorator:
    """Gives a test the ``name`` of each trace of one kind."""
    return pytest.mark.parametrize("name", trace_names(prefix))


def text_of(name: str) -> str:
    return (TRACES / f"{name}.txt").read_text()


def check_trace(name: str, run: Callable[[str], list[str]]) -> None:
    """Run each command of a script. What comes of it, line by line, must be what its trace says."""
    lines = []
    for line in text_of(name).splitlines():
        if not line.startswith("  "):
            lines.append(line)
        if line.startswith("> "):
            lines += [f"  {outcome}" for outcome in run(line.removeprefix("> "))]
    if os.environ.get(REWRITE):
        (TRACES / f"{name}.txt").write_text("\n".join(lines) + "\n")
    assert lines == text_of(name).splitlines(), f"{REWRITE}=1 writes the trace anew"
