"""``blumfeld archive``: one module a verb, each with a function ``command`` that imports what it needs when it
is called.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import typer

VERBS = (
    "doctor",
    "run",
    "once",
    "backfill",
    "status",
    "verify",
    "gaps",
    "compact",
    "vacuum",
    "bars",
    "book",
    "replay",
    "load",
    "sql",
    "export",
    "plot",
    "bench",
)

app = typer.Typer(
    name="archive",
    help="Market data from topics into files that any tool reads, each record exactly once.",
    no_args_is_help=True,
    add_completion=False,
)
for verb in VERBS:
    if find_spec(f"{__name__}.{verb}") is not None:  # while the house is being built
        app.command(verb)(import_module(f"{__name__}.{verb}").command)
