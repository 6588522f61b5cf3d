"""``archive load``: sends capture files of an exchange's feed to a topic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from blumfeld.feeds import RECV_HEADER
from blumfeld_sink_spark.commands.common import options
from blumfeld_sink_spark.commands.common.edge import edge

if TYPE_CHECKING:
    from blumfeld_sink_spark.reading.producing.load import Loaded, Spread


@edge
def command(
    files: Annotated[list[Path], typer.Argument(help="`ns JSON` a line, plain or .gz; in this order.")],
    topic: Annotated[str, typer.Option(help="Created without a retention limit if it is missing.")],
    bootstrap: Annotated[str, typer.Option(help="bootstrap.servers")] = "127.0.0.1:9092",
    command_config: options.CommandConfig = None,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of a new topic.")] = 1,
    key: Annotated[str, typer.Option(help="symbol, none, or the key itself.")] = "symbol",
    symbol: Annotated[str, typer.Option(help="Symbol of messages before the first that names one.")] = "",
    recv_header: Annotated[
        str, typer.Option(help="Header with the ns of receipt; empty sends none.")
    ] = RECV_HEADER,
    repeat: Annotated[int, typer.Option(min=1, help="Send the files so many times.")] = 1,
    limit: Annotated[int, typer.Option(min=0, help="Messages at most; 0 is all.")] = 0,
    spread: Annotated[str, typer.Option(help="What chooses the partition: key, stream or repeat.")] = "key",
    compression: Annotated[str, typer.Option(help="none, zstd, lz4, gzip or snappy.")] = "none",
    speed: Annotated[str, typer.Option(help="max, or a factor of the original pace: 1.0, 10.")] = "max",
    rate: Annotated[float, typer.Option(min=0, help="Messages a second at most; 0 is no limit.")] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was sent as one line of JSON.")] = False,
) -> None:
    """Send captured messages to a topic: bytes as they are, stamped with the time of their receipt."""
    from rich.console import Console

    from blumfeld_sink_spark.errors import SettingsError
    from blumfeld_sink_spark.logins import read_login
    from blumfeld_sink_spark.reading.producing.load import LoadPlan, load
    from blumfeld_sink_spark.reading.producing.pace import Pace, speed_of
    from blumfeld_sink_spark.reading.producing.topic_writer import Topic

    if spread not in ("key", "stream", "repeat"):
        raise SettingsError(f"spread: {spread!r}; allowed: key, stream, repeat")
    plan = LoadPlan(
        files=files,
        key=key,
        symbol=symbol,
        recv_header=recv_header,
        repeat=repeat,
        limit=limit,
        spread=cast("Spread", spread),
        compression=compression,
    )
    console = Console(stderr=True)
    with console.status(f"{topic}: starting") as status:
        loaded = load(
            plan,
            Topic(bootstrap, topic, read_login(command_config, {}) if command_config else None),
            partitions=partitions,
            pace=Pace(speed_of(speed), rate),
            on_progress=lambda sent, size: status.update(f"{topic}: {sent:,} messages, {size / 1e6:,.1f} MB"),
        )
    _show(loaded, topic, as_json)


def _show(loaded: Loaded, topic: str, as_json: bool) -> None:
    import json

    import attrs
    from rich.console import Console
    from rich.table import Table

    if as_json:
        typer.echo(json.dumps({"topic": topic, **attrs.asdict(loaded)}))
        return
    table = Table(title=f"{topic}: {loaded.partitions} partition{'s' * (loaded.partitions > 1)}")
    table.add_column("stream")
    table.add_column("messages", justify="right")
    for stream, count in loaded.streams.items():
        table.add_row(stream, f"{count:,}")
    table.add_section()
    table.add_row("all", f"{loaded.messages:,}")
    console = Console()
    console.print(table)
    seconds = max(loaded.seconds, 1e-9)
    console.print(
        f"{loaded.bytes / 1e6:,.1f} MB in {loaded.seconds:.2f} s: "
        f"{loaded.messages / seconds:,.0f} messages/s, {loaded.bytes / 1e6 / seconds:,.1f} MB/s, all acknowledged"
    )
