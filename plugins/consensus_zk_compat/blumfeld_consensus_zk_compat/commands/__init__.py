"""``blumfeld migrate``: what a migration to KRaft waits for, and the way back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="migrate",
    help="A migration from a ZooKeeper to KRaft: its phase and what to do next, and the way back.",
    no_args_is_help=True,
    add_completion=False,
)
MANIFEST = typer.Argument(help="of a controller, for its [migration], or of a broker with the ZooKeeper")


@app.command("status")
def status(manifest: Annotated[Path, MANIFEST]) -> None:
    """Show the phase, and what to do next. Changes nothing."""
    from blumfeld_consensus_zk_compat.commands.tree_work import read_status

    _run(manifest, read_status)


@app.command("rollback")
def rollback(manifest: Annotated[Path, MANIFEST]) -> None:
    """Give the tree back to its brokers, once the controllers are stopped and every broker reads the tree."""
    from blumfeld_consensus_zk_compat.commands.tree_work import roll_back

    _run(manifest, roll_back)


def _run(manifest: Path, work: object) -> None:
    from blumfeld_consensus_zk_compat.commands.tree_work import FAILURES, with_tree

    try:
        lines = asyncio.run(with_tree(manifest, work))  # type: ignore[arg-type]
    except FAILURES as error:
        typer.echo(f"blumfeld: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo("\n".join(lines))
