"""The verb ``plan``."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from blumfeld.cli.manifest import BAD_MANIFEST
from blumfeld.cli.plan.composed import composed
from blumfeld.kernel.describing import describe
from blumfeld.kernel.description.document import encode_document
from blumfeld.kernel.description.text import nodes_text
from blumfeld.plugging.errors import ManifestError
from blumfeld.wire.errors import PluginContractError


def plan(
    manifest: Annotated[str | None, typer.Argument(help="A TOML file; none is the default node.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Lay a value over it.")
    ] = None,
    data_dir: Annotated[str | None, typer.Option(help="node.data_dir")] = None,
    listen: Annotated[str | None, typer.Option(help="Where the first broker listener binds.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the document, for a program.")] = False,
) -> None:
    """Show what a manifest composes: plug-ins, APIs, the meaning of an ack, missing parts. Opens nothing."""
    try:
        plans = composed(manifest, overrides or (), data_dir, listen)
        described = asyncio.run(describe(plans[0]))
    except (ManifestError, PluginContractError) as error:
        for line in str(error).splitlines():
            typer.echo(f"blumfeld: {line}", err=True)
        raise typer.Exit(BAD_MANIFEST) from None
    if as_json:
        typer.echo(encode_document(described.document))
        return
    if len(plans) > 1:
        typer.echo(nodes_text(plans))
    typer.echo(described.text, nl=False)
