"""``blumfeld archive``: one module for each verb, found by the verb's name. Rooms hold verbs of one kind.

Each module has a function ``command``. It imports its dependencies when it is called: Arrow and Spark take seconds to
import, and ``--help`` needs neither. ``common`` holds the code that verbs share.
"""

from __future__ import annotations

from importlib import import_module

import typer

# In the order of ``--help``.
VERBS = (
    "archiving.doctor",
    "archiving.run",
    "archiving.once",
    "archiving.backfill",
    "upkeep.status",
    "upkeep.verify",
    "reading.gaps",
    "upkeep.compact",
    "upkeep.vacuum",
    "reading.bars",
    "reading.book",
    "sending.replay",
    "sending.load",
    "reading.sql",
    "reading.export",
    "reading.plot",
    "archiving.bench",
)

app = typer.Typer(
    name="archive",
    help="Market data from topics into files that any tool reads, each record exactly once.",
    no_args_is_help=True,
    add_completion=False,
)
for verb in VERBS:
    app.command(verb.rpartition(".")[2])(import_module(f"{__name__}.{verb}").command)
