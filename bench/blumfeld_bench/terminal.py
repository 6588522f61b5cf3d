"""Shared parts of the verbs of ``blumfeld bench``: options, refusals, result paths, the console.

Exit statuses: 0 measured; 1 nothing could be measured; 2 wrong input, nothing was started; 130 interrupted.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console

FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130
FILE_COLUMNS = 120
LIBRARIES = ("hdrh", "numpy", "matplotlib")

Out = Annotated[
    Path | None, typer.Option("--out", help="The result file; bench-WORKLOAD-TIME.json if not given.")
]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--folder",
        help="Folder of the servers' data, on the disk to be measured; a temporary folder if not given.",
    ),
]


def with_common(variant: str, overrides: Sequence[str]) -> str:
    """Return a variant's text with ``overrides`` laid beneath its own; a foreign broker's text stays as it is."""
    from blumfeld_bench.plan.variants import SCHEME

    if not overrides or variant.startswith(SCHEME):
        return variant
    try:
        what, *own = shlex.split(variant)
    except ValueError:
        return variant  # the parser reports the mistake in it
    common = [part for override in overrides for part in ("--set", override)]
    return shlex.join([what, *common, *own])


def need_libraries() -> None:
    """Refuse the command, with an install hint, unless all that blumfeld-bench needs is installed."""
    from importlib.util import find_spec

    missing = [name for name in LIBRARIES if find_spec(name) is None]
    if missing:
        refuse(f"{', '.join(missing)} not installed: pip install blumfeld-bench")


def refuse(reason: str) -> NoReturn:
    """Print why the input is wrong and end with status 2."""
    for line in reason.splitlines():
        typer.echo(f"blumfeld: {line}", err=True)
    raise typer.Exit(BAD_INPUT)


def existing(folder: Path | None) -> Path | None:
    """Return the folder, or refuse the command if it doesn't exist."""
    if folder is not None and not folder.is_dir():
        refuse(f"--folder {folder}: found no such folder; allowed: an existing one")
    return folder


def make_console(columns: int = FILE_COLUMNS) -> Console:
    """Return a console as wide as the terminal, or ``columns`` wide where there is none."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=columns)


def result_path(out: Path | None, workload: str) -> Path:
    """Return the path of the result file; refuse the command if it can't be written to."""
    from datetime import UTC, datetime

    path = out or Path(f"bench-{workload}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json")
    if path.is_dir() or not path.absolute().parent.is_dir():
        refuse(
            f"--out {path}: found {'a folder' if path.is_dir() else 'no such folder'}; allowed: a file in one"
        )
    return path
