"""A campaign on the command line: options that several share, broken promises, the reason of a refusal."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.markup import escape

BAD_INPUT = 2
"""Exit status of a campaign that can't run as it was asked to."""
WRONG_SHOWN = 20


def console_of(width: int = 150) -> Console:
    """Return the console, of this width where no terminal says otherwise."""
    return Console(width=None if sys.stdout.isatty() else width, highlight=False)


def add_node_options(parser: argparse.ArgumentParser) -> None:
    """Settings of this build's nodes, the folder of all nodes, and the result file."""
    laid = "laid over each node's manifest"
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help=laid)
    parser.add_argument("--folder", type=Path, help="data and logs of all nodes; it must be new, and is kept")
    parser.add_argument("--out", type=Path, help="result file, JSON")


def folder_of(campaign: str, given: argparse.Namespace, stack: ExitStack) -> Path:
    """Return the folder of all nodes: the one that ``--folder`` names, or one that goes with the stack."""
    folder = given.folder or Path(stack.enter_context(TemporaryDirectory(prefix=f"blumfeld-{campaign}-")))
    folder.mkdir(parents=True, exist_ok=True)
    return Path(folder).resolve()


def print_wrong(console: Console, wrong: Sequence[str]) -> None:
    """Print the first of the broken promises, and how many more there are."""
    for line in wrong[:WRONG_SHOWN]:
        console.print(f"[red]✗ {escape(line)}[/]")
    if len(wrong) > WRONG_SHOWN:
        console.print(f"[red]… and {len(wrong) - WRONG_SHOWN} more[/]")


def refused(campaign: str, reason: object) -> int:
    """Say why a campaign can't run; return its exit status."""
    print(f"campaigns {campaign}: {reason}", file=sys.stderr)
    return BAD_INPUT
