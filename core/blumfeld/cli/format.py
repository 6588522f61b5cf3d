"""``blumfeld format``: write the files that tie the log directories to a cluster and a node."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from blumfeld.cli.manifest import BAD_MANIFEST, NOT_STARTED, load_manifest, source_name
from blumfeld.kernel.composing.plan import Plan, make_plan
from blumfeld.kernel.formatting.directories import AlreadyFormatted, Formatting, format_directories
from blumfeld.kernel.formatting.quorum import InitialQuorum, initial_controllers
from blumfeld.kernel.manifest.sections import Manifest
from blumfeld.kernel.runtime.short_lived_runtime import short_lived_runtime
from blumfeld.kernel.supervising.derivation import node_manifests
from blumfeld.kernel.supervising.preparation import check_directories, format_nodes
from blumfeld.log.checkpoints import MetaProperties
from blumfeld.plugging.errors import Faults, ManifestError, Problem
from blumfeld.wire.errors import PluginContractError
from blumfeld.wire.primitives import uuid_text

AddScram = Annotated[
    list[str] | None,
    typer.Option(
        "--add-scram",
        "-S",
        metavar="MECHANISM=[name=NAME,password-file=PATH]",
        help="A credential that the cluster begins with; Kafka's forms are taken, too.",
    ),
]


def format_data_dir(
    manifest: Annotated[str | None, typer.Argument(help="A TOML file; none is the default node.")] = None,
    cluster_id: Annotated[str | None, typer.Option(help="node.cluster_id; a new one by default.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Lay a value over it.")
    ] = None,
    data_dir: Annotated[str | None, typer.Option(help="node.data_dir")] = None,
    standalone: Annotated[
        bool, typer.Option("--standalone", help="Begin a dynamic quorum with this node as its only voter.")
    ] = False,
    controllers: Annotated[
        str | None,
        typer.Option(
            "--initial-controllers",
            metavar="ID@HOST:PORT:DIRECTORY-ID,…",
            help="Begin a dynamic quorum of these voters; every node is formatted with the same list.",
        ),
    ] = None,
    no_initial_controllers: Annotated[
        bool,
        typer.Option("--no-initial-controllers", help="Join a dynamic quorum that other nodes begin."),
    ] = False,
    features: Annotated[
        list[str] | None,
        typer.Option("--feature", metavar="NAME=LEVEL", help="Another level than the default; 0 is none."),
    ] = None,
    add_scram: AddScram = None,
    release_version: Annotated[
        str | None, typer.Option(help="Kafka's name of the metadata.version; only 4.3-IV0 here.")
    ] = None,
    ignore_formatted: Annotated[
        bool,
        typer.Option(help="Leave directories that are formatted already as they are, and format the others."),
    ] = False,
) -> None:
    """Format the data directories: write cluster id, node id, feature levels and the first voters.

    Without one of the three flags of the quorum the node is formatted for a static quorum, as `run` does in an empty
    directory. With `nodes = N` all nodes are formatted.
    """
    try:
        source = source_name(manifest)
        faults = Faults(source)
        loaded = _in_cluster(load_manifest(manifest, overrides or (), data_dir, faults=faults), cluster_id)
        formatting = Formatting(
            quorum=_quorum(standalone, controllers, no_initial_controllers),
            features=tuple(features or ()),
            release_version=release_version,
            add_scram=tuple(add_scram or ()),
            ignore_formatted=ignore_formatted,
        )
        plans = [
            make_plan(node, source, faults=faults, written=loaded)
            for node in node_manifests(loaded, source, faults)
        ]
        formatted = asyncio.run(_formatted(loaded, plans, formatting))
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
    _tell(plans, formatted)


def _tell(plans: Sequence[Plan], formatted: dict[str, MetaProperties]) -> None:
    for where in [directory for plan in plans for directory in plan.manifest.node.directories]:
        if (meta := formatted.get(where)) is None:
            typer.echo(f"left {where} as it is: formatted already")
            continue
        directory = uuid_text(meta.directory_id)
        typer.echo(
            f"formatted {where}: cluster {meta.cluster_id}, node {meta.node_id}, directory {directory}"
        )


def _in_cluster(manifest: Manifest, cluster_id: str | None) -> Manifest:
    if cluster_id is None:
        return manifest
    node = msgspec.structs.replace(manifest.node, cluster_id=cluster_id)
    return msgspec.structs.replace(manifest, node=node)


def _quorum(standalone: bool, controllers: str | None, no_initial_controllers: bool) -> InitialQuorum:
    flags = {
        "--standalone": standalone,
        "--initial-controllers": controllers is not None,
        "--no-initial-controllers": no_initial_controllers,
    }
    given = [flag for flag, is_given in flags.items() if is_given]
    if len(given) > 1:
        raise ManifestError(given[0], [Problem("", " and ".join(given), "one of them")])
    return InitialQuorum(
        standalone=standalone,
        initial_controllers=() if controllers is None else initial_controllers(controllers),
        no_initial_controllers=no_initial_controllers,
    )


async def _formatted(
    manifest: Manifest, plans: Sequence[Plan], formatting: Formatting
) -> dict[str, MetaProperties]:
    async with short_lived_runtime() as runtime:
        if len(plans) == 1:
            return format_directories(plans[0], runtime, formatting)
        check_directories(manifest, plans, runtime)
        return format_nodes(plans, runtime, formatting)
