"""``blumfeld tiered``: one module for each verb. Each imports its work when it is called, so ``--help`` needs none."""

from __future__ import annotations

import typer

from blumfeld_storage_tiered.commands import restore, status, verify

app = typer.Typer(
    name="tiered",
    help="The object store of a tiered storage: its size, its costs, whether it is whole, and a restore from it.",
    no_args_is_help=True,
    add_completion=False,
)
app.command("restore")(restore.command)
app.command("status")(status.command)
app.command("verify")(verify.command)
