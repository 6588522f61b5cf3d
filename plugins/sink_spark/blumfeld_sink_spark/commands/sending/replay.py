"""``archive replay``: sends the table raw to a topic again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from blumfeld_sink_spark.commands.common import options
from blumfeld_sink_spark.commands.common.edge import edge

if TYPE_CHECKING:
    from blumfeld_sink_spark.reading.producing.replay import Replayed


@edge
def command(
    to_topic: Annotated[str, typer.Option(help="Created without a retention limit if it is missing.")],
    root: Annotated[str, typer.Option(help="The archive.")] = "archive",
    bootstrap: Annotated[str, typer.Option(help="bootstrap.servers")] = "127.0.0.1:9092",
    command_config: options.CommandConfig = None,
    topic: Annotated[str, typer.Option(help="Needed if the table raw has several topics.")] = "",
    speed: Annotated[
        str, typer.Option(help="1.0 is the original pace, 10 ten times that, max flat out.")
    ] = "1.0",
    start: Annotated[str | None, typer.Option("--from", help="Records stamped then or later.")] = None,
    end: Annotated[str | None, typer.Option("--to", help="Records stamped before then.")] = None,
    append: Annotated[bool, typer.Option("--append", help="The topic may hold records already.")] = False,
    renumber: Annotated[
        bool, typer.Option("--renumber", help="Go on where the archive has holes: offsets will differ.")
    ] = False,
    partitions: Annotated[
        int, typer.Option(min=0, help="Partitions of a new topic; 0: as many as it had.")
    ] = 0,
    compression: Annotated[str, typer.Option(help="none, zstd, lz4, gzip or snappy.")] = "none",
    as_json: Annotated[bool, typer.Option("--json", help="Print what was sent as one line of JSON.")] = False,
) -> None:
    """Send archived records to a topic again: partition, key, value, headers, timestamp, order and offsets are kept.

    It needs the table raw: archive with --decoder raw beside the others.
    """
    from rich.console import Console

    from blumfeld_sink_spark.logins import read_login
    from blumfeld_sink_spark.reading.committed_files import Committed
    from blumfeld_sink_spark.reading.producing.pace import Pace, speed_of
    from blumfeld_sink_spark.reading.producing.raw_rows import RawTopic
    from blumfeld_sink_spark.reading.producing.replay import ReplayPlan, replay
    from blumfeld_sink_spark.reading.producing.topic_writer import Topic
    from blumfeld_sink_spark.reading.times import ns_of

    plan = ReplayPlan(
        start_ns=ns_of(start),
        end_ns=ns_of(end),
        append=append,
        renumber=renumber,
        partitions=partitions,
        compression=compression,
    )
    pace_factor = speed_of(speed)
    source = RawTopic.find(Committed.open(root), topic)
    with Console(stderr=True).status(f"{to_topic}: starting") as status:
        done = replay(
            source,
            Topic(bootstrap, to_topic, read_login(command_config, {}) if command_config else None),
            plan,
            pace=Pace(pace_factor),
            on_progress=lambda sent, size: status.update(
                f"{to_topic}: {sent:,} records, {size / 1e6:,.1f} MB"
            ),
            every=5000 if not pace_factor else 100,
        )
    _show(done, source.topic, as_json)


def _show(done: Replayed, source: str, as_json: bool) -> None:
    import json

    import attrs

    if as_json:
        typer.echo(json.dumps({"from": source, **attrs.asdict(done)}))
        return
    seconds = max(done.seconds, 1e-9)
    offsets = "at the offsets that they had" if done.same_offsets else "at new offsets"
    typer.echo(
        f"{done.records:,} records of {source} are in {done.topic} {offsets}, {done.partitions} "
        f"partition{'s' * (done.partitions > 1)}: {done.bytes / 1e6:,.1f} MB in {done.seconds:.2f} s, "
        f"{done.records / seconds:,.0f} records/s, all acknowledged"
    )
