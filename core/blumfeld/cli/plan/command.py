"""The verb ``plan``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

import msgspec
import typer

from blumfeld.cli.command_config import CommandConfig, security_of
from blumfeld.cli.manifest import BAD_MANIFEST
from blumfeld.cli.plan.composed import composed
from blumfeld.cli.plan.errors import NoPlanError
from blumfeld.cli.plan.places import document_at, is_broker, is_manifest
from blumfeld.client.security.command_config import ClientSecurity, CommandConfigError
from blumfeld.kernel.describing import describe
from blumfeld.kernel.description.differences import Difference, differences
from blumfeld.kernel.description.document import PlanDocument, encode_document
from blumfeld.kernel.description.text import document_text, made_of, nodes_text
from blumfeld.plugging.errors import ManifestError
from blumfeld.wire.errors import PluginContractError

EQUAL, DIFFERENT = 0, 1
"""Exit statuses of a comparison; an error is :data:`~blumfeld.cli.manifest.BAD_MANIFEST`, as with ``diff``."""


def plan(
    manifest: Annotated[
        str | None,
        typer.Argument(
            metavar="A",
            help="A manifest; none is the default node. Or an artefact, its folder, a plan.json, HOST:PORT of a "
            "broker, http://HOST:PORT of its metrics.",
        ),
    ] = None,
    other: Annotated[
        str | None, typer.Argument(metavar="B", help="Another one: show what differs. Exit status 1 if so.")
    ] = None,
    of: Annotated[
        str | None, typer.Option("--of", metavar="HOST:PORT", help="Ask a running broker what it is made of.")
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Lay a value over A.")
    ] = None,
    data_dir: Annotated[str | None, typer.Option(help="node.data_dir")] = None,
    listen: Annotated[str | None, typer.Option(help="Where the first broker listener binds.")] = None,
    command_config: CommandConfig = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a document, for a program.")] = False,
) -> None:
    """Show what a build is made of: plug-ins, APIs, the meaning of an ack, missing parts. Opens nothing.

    With two builds it shows their differences.
    """
    laid_over = bool(overrides or data_dir or listen)
    try:
        if of is not None:
            if manifest is not None:
                raise NoPlanError("--of", f"it takes no manifest; to compare: blumfeld plan {manifest} {of}")
            if is_manifest(of):
                raise NoPlanError(
                    "--of", f"{of} is no HOST:PORT of a broker, nor http://HOST:PORT of its metrics"
                )
            manifest = of
        if command_config is not None and not any(place and is_broker(place) for place in (manifest, other)):
            raise NoPlanError("--command-config", "only where a HOST:PORT of a broker is asked")
        security = security_of(command_config)
        elsewhere = manifest is not None and not is_manifest(manifest)
        if laid_over and (elsewhere or other is not None):
            raise NoPlanError("--set, --data-dir, --listen", "only for one manifest")
        if manifest is not None and other is not None:
            raise typer.Exit(_compared(manifest, other, as_json, security))
        if manifest is not None and elsewhere:
            _show(document_at(manifest, security), manifest, as_json)
        else:
            _show_manifest(manifest, overrides or (), data_dir, listen, as_json)
    except (NoPlanError, CommandConfigError, ManifestError, PluginContractError) as error:
        for line in str(error).splitlines():
            typer.echo(f"blumfeld: {line}", err=True)
        raise typer.Exit(BAD_MANIFEST) from None


def _show_manifest(
    manifest: str | None, overrides: Sequence[str], data_dir: str | None, listen: str | None, as_json: bool
) -> None:
    plans = composed(manifest, overrides, data_dir, listen)
    described = asyncio.run(describe(plans[0]))
    if as_json:
        typer.echo(encode_document(described.document))
        return
    if len(plans) > 1:
        typer.echo(nodes_text(plans))
    typer.echo(described.text, nl=False)


def _show(document: PlanDocument, origin: str, as_json: bool) -> None:
    if as_json:
        typer.echo(encode_document(document))
    else:
        typer.echo(document_text(document, origin=f"from {origin}"), nl=False)


def _compared(first: str, second: str, as_json: bool, security: ClientSecurity) -> int:
    """Print what differs, and return the exit status."""
    documents = [document_at(first, security), document_at(second, security)]
    found = differences(*documents)
    if as_json:
        typer.echo(msgspec.json.encode(found))
    else:
        for line in _lines((first, second), documents, found):
            typer.echo(line)
    return DIFFERENT if found else EQUAL


def _lines(
    places: Iterable[str], documents: Sequence[PlanDocument], found: Sequence[Difference]
) -> Iterator[str]:
    for letter, place, document in zip("AB", places, documents, strict=True):
        yield f"{letter}: {place}: {made_of(document)}"
    if not found:
        yield "no difference"
    for part in dict.fromkeys(difference.part for difference in found):
        yield ""
        yield part
        for difference in found:
            if difference.part == part:
                yield f"  {difference.name}"
                yield f"    A  {difference.first}"
                yield f"    B  {difference.second}"
