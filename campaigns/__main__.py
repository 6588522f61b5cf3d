"""``python -m campaigns``: list the campaigns; ``python -m campaigns NAME [options]``: run one."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from campaigns.catalogue import ARCHIVES, BENCHES, CAMPAIGNS, CLIENTS_AND_FAULTS, RESULTS
from campaigns.commands import AbsentError, command_lines
from campaigns.references import PLACES, VARIABLE, default_folder, find_references

BAD_CALL = 2
"""Exit status for a name that isn't in the list, and for a campaign whose reference program is absent."""
WIDTH = 150
"""Columns of the list where no terminal says otherwise."""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


# What stands behind the name belongs to the campaign, `--help` too.
@app.command(context_settings={"allow_interspersed_args": False})
def campaigns(
    name: Annotated[
        str | None, typer.Argument(help="A name of the list. Without one the list is printed.")
    ] = None,
    options: Annotated[
        list[str] | None, typer.Argument(help="Options of that campaign; --help prints them.")
    ] = None,
    references: Annotated[
        Path | None,
        typer.Option(help=f"Folder of reference programs; ${VARIABLE}, else `shared` beside the checkout."),
    ] = None,
    limit_s: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds that the campaign may take; then it is ended, status 124."),
    ] = None,
) -> None:
    """List what proves the project, or run one campaign. Options replace the defaults of a run."""
    if name is None:
        print_list()
        return
    campaign = CAMPAIGNS.get(name)
    if campaign is None:
        near = get_close_matches(name, CAMPAIGNS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        _refuse(f"no campaign has the name {name!r}.{hint} `python -m campaigns` lists all.")
        return
    folder = references or default_folder()
    try:
        lines = command_lines(campaign, options or [], find_references(folder))
    except AbsentError as error:
        _refuse(
            f"{name} needs {PLACES[error.name]} in the folder of reference programs, and {folder} has none. "
            f"Name another folder by --references or ${VARIABLE}."
        )
        return
    raise typer.Exit(run(lines, limit_s))


def run(lines: list[list[str]], limit_s: float | None = None) -> int:
    """Run the processes one after the other; return the status of the first one that fails."""
    if any(RESULTS in word for line in lines for word in line):
        Path(RESULTS).mkdir(exist_ok=True)
    import anyio  # the list of campaigns doesn't wait for it

    from campaigns.supervision import run_all

    status: int = anyio.run(run_all, lines, limit_s)
    return status


def print_list() -> None:
    """Print every campaign with its sentence, its duration and what it needs."""
    table = Table(show_edge=False, pad_edge=False, header_style="")
    table.add_column("name", no_wrap=True, style="bold")
    table.add_column("what it shows")
    table.add_column("takes", no_wrap=True)
    table.add_column("needs")
    for group in (CLIENTS_AND_FAULTS, ARCHIVES, BENCHES):
        for campaign in group:
            table.add_row(
                campaign.name,
                campaign.sentence,
                campaign.duration,
                campaign.needs,
                end_section=campaign is group[-1],
            )
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table)


def _refuse(reason: str) -> None:
    typer.echo(f"campaigns: {reason}", err=True)
    raise typer.Exit(BAD_CALL)


if __name__ == "__main__":
    app(prog_name="python -m campaigns")
