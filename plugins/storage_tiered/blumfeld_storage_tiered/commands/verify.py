"""``blumfeld tiered verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from blumfeld.client.security.command_config import HELP, METAVAR, OPTION

if TYPE_CHECKING:
    from blumfeld.spi.runtime import Files


def command(
    context: typer.Context,
    manifest: Annotated[str, typer.Argument(help="The TOML file of a node.")],
    topic: Annotated[str | None, typer.Option(help="Check this topic alone.")] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="A broker: check against the records of its metadata topic, too."
        ),
    ] = None,
    command_config: Annotated[str | None, typer.Option(OPTION, metavar=METAVAR, help=HELP)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON a finding.")] = False,
) -> None:
    """Read every byte in the store, and compare it with what was written.

    Names each object that is missing, rotten or orphaned. Changes nothing. Exits with 0 if all is whole, with 1 if
    something is wrong, and with 2 if nothing can be said.
    """
    from blumfeld_storage_tiered.commands.opened import run

    run(_verify(context.obj, manifest, topic, bootstrap, command_config, as_json=as_json))


async def _verify(
    files: Files,
    manifest: str,
    topic: str | None,
    bootstrap: str | None,
    command_config: str | None,
    *,
    as_json: bool,
) -> int:
    import msgspec

    from blumfeld_storage_tiered.care.verification import StoreVerification
    from blumfeld_storage_tiered.commands.opened import FAILED, asked_cluster, bytes_text, opened_store
    from blumfeld_storage_tiered.objects.segments import SegmentObjects
    from blumfeld_storage_tiered.objects.topics import TopicObjects

    async with opened_store(files, manifest) as opened:
        records = topic_ids = None
        cluster = asked_cluster(files, bootstrap, command_config, opened)
        if cluster is not None:
            records, topic_ids = cluster.records(), cluster.topic_ids
            cluster.close()
        objects = SegmentObjects(opened.runtime, opened.store)
        verification = StoreVerification(
            objects,
            TopicObjects(opened.store),
            opened.runtime.now_ms(),
            records,
            topic,
            topic_ids=topic_ids,
        )
        wrong = 0
        async for finding in verification.findings():
            wrong += 1
            text = f"{finding.kind}: {finding.key}: found {finding.found}; written: {finding.written}"
            typer.echo(msgspec.json.encode(finding).decode() if as_json else text)
        if not as_json:
            checked = verification.checked
            against = "their manifests" if records is None else "their manifests and the metadata topic"
            typer.echo(f"{opened.shown}, cluster {opened.cluster_id}")
            line = f"{checked.segments} segments with {bytes_text(checked.size_bytes)} read against {against}"
            typer.echo(f"{line}; {checked.under_way} under way; {wrong} wrong")
        return FAILED if wrong else 0
