"""``blumfeld archive``: one module a verb, each with a function ``command`` that imports what it needs when it
is called.
"""

from __future__ import annotations

from importlib import import_module

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
    app.command(verb)(import_module(f"{__name__}.{verb}").command)
