"""``blumfeld tiered status``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from blumfeld.client.security.command_config import HELP, METAVAR, OPTION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blumfeld.spi.runtime import Files
    from blumfeld_storage_tiered.care.standing import TopicStanding
    from blumfeld_storage_tiered.commands.opened import OpenedStore


def command(
    context: typer.Context,
    manifest: Annotated[str, typer.Argument(help="The TOML file of a node.")],
    bootstrap: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="A broker: show what lies on the disks, and what isn't copied yet."
        ),
    ] = None,
    command_config: Annotated[str | None, typer.Option(OPTION, metavar=METAVAR, help=HELP)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON a topic.")] = False,
) -> None:
    """Show how much of each topic lies in the store and on the disks, and what the store costs.

    It lists all objects and reads none. The costs come from [storage.options.prices].
    """
    from blumfeld_storage_tiered.commands.opened import run

    run(_status(context.obj, manifest, bootstrap, command_config, as_json=as_json))


async def _status(
    files: Files, manifest: str, bootstrap: str | None, command_config: str | None, *, as_json: bool
) -> int:
    import msgspec

    from blumfeld_storage_tiered.care.standing import standings
    from blumfeld_storage_tiered.commands.opened import asked_cluster, opened_store
    from blumfeld_storage_tiered.objects.segments import SegmentObjects
    from blumfeld_storage_tiered.objects.topics import TopicObjects

    async with opened_store(files, manifest) as opened:
        ends = None
        cluster = asked_cluster(files, bootstrap, command_config, opened)
        if cluster is not None:
            ends = cluster.ends()
            cluster.close()
        objects = SegmentObjects(opened.runtime, opened.store)
        described = [topic.topic async for topic in TopicObjects(opened.store).list()]
        topics = standings([segment async for segment in objects.list_segments()], ends, described)
        if as_json:
            for topic in topics:
                typer.echo(msgspec.json.encode(topic).decode())
        else:
            _show(opened, topics)
    return 0


def _show(opened: OpenedStore, topics: Sequence[TopicStanding]) -> None:
    from blumfeld_storage_tiered.care.standing import cost
    from blumfeld_storage_tiered.commands.opened import bytes_text

    def known(value: int | None) -> str:
        return "-" if value is None else bytes_text(value)

    typer.echo(f"{opened.shown}, cluster {opened.cluster_id}")
    line = "{:<32} {:>9} {:>12} {:>12} {:>12} {:>14}"
    typer.echo(line.format("topic", "segments", "remote", "local", "not copied", "records to copy"))
    for topic in topics:
        lag = "-" if topic.lag_records is None else str(topic.lag_records)
        sizes = bytes_text(topic.remote_bytes), known(topic.local_bytes), known(topic.pending_bytes)
        typer.echo(line.format(topic.topic, topic.segments, *sizes, lag))
    if bare := [topic.topic for topic in topics if not topic.described]:
        typer.echo(f"no description, so that a restore knows no settings of: {', '.join(bare)}")
    prices = opened.options.prices
    costs = cost(topics, prices)
    if any((prices.gb_month, prices.put_1000, prices.get_1000, prices.gb_out)):
        shown = f"{costs.month:.4f} a month, {costs.written:.4f} to have written it, {costs.read_once:.4f}"
        typer.echo(f"{prices.currency}: {shown} to read all of it once")
    else:
        typer.echo("no prices: set them in [storage.options.prices]")
