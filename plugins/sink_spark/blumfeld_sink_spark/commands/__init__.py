"""``blumfeld archive``: one module for each verb, found by the verb's name, so this package grows with the verbs.

Each module has a function ``command``. It imports its dependencies when it is called: Arrow and Spark take seconds to
import, and ``--help`` needs neither. ``common`` holds the code that verbs share.
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
