"""``blumfeld format``: write the files that tie the log directories to a cluster and a node."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
import typer

from blumfeld.cli.run import BAD_MANIFEST, NOT_STARTED, load_manifest
from blumfeld.kernel.composing.plan import Plan, make_plan
from blumfeld.kernel.formatting import AlreadyFormatted, format_directories
from blumfeld.kernel.manifest.sections import NO_FILE
from blumfeld.kernel.runtime.asyncio_runtime import AsyncioRuntime
from blumfeld.log.checkpoints import MetaProperties
from blumfeld.plugging.errors import ManifestError
from blumfeld.wire.errors import PluginContractError
from blumfeld.wire.primitives import uuid_text


def format_data_dir(
    manifest: Annotated[str | None, typer.Argument(help="A TOML file; none is the default node.")] = None,
    cluster_id: Annotated[str | None, typer.Option(help="node.cluster_id; a new one by default.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Lay a value over it.")
    ] = None,
    data_dir: Annotated[str | None, typer.Option(help="node.data_dir")] = None,
    ignore_formatted: Annotated[
        bool,
        typer.Option(help="Leave directories that are formatted already as they are, and format the others."),
    ] = False,
) -> None:
    """Format the data directories: write cluster id, node id and feature levels, as `run` does in an empty
    directory.
    """
    try:
        loaded = load_manifest(manifest, overrides or (), data_dir)
        if cluster_id is not None:
            node = msgspec.structs.replace(loaded.node, cluster_id=cluster_id)
            loaded = msgspec.structs.replace(loaded, node=node)
        plan = make_plan(loaded, manifest or NO_FILE)
        formatted = asyncio.run(_formatted(plan, ignore_formatted))
    except (ManifestError, PluginContractError) as error:
        for line in str(error).splitlines():
            typer.echo(f"blumfeld: {line}", err=True)
        raise typer.Exit(BAD_MANIFEST) from None
    except (AlreadyFormatted, ValueError) as error:
        typer.echo(f"blumfeld: {error}", err=True)
        raise typer.Exit(NOT_STARTED) from None
    except OSError as error:
        typer.echo(f"blumfeld: {error.filename}: {error.strerror}", err=True)
        raise typer.Exit(NOT_STARTED) from None
    for where, meta in formatted.items():
        directory = uuid_text(meta.directory_id)
        typer.echo(
            f"formatted {where}: cluster {meta.cluster_id}, node {meta.node_id}, directory {directory}"
        )


async def _formatted(plan: Plan, ignore_formatted: bool) -> dict[str, MetaProperties]:
    def defect(where: str, error: BaseException) -> None:
        raise error

    runtime = AsyncioRuntime(defect)
    try:
        return format_directories(plan, runtime, ignore_formatted)
    finally:
        await runtime.close()
