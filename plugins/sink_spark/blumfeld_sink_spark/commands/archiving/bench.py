"""``archive bench``: compares the archive with Spark's own Parquet sink."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from blumfeld_sink_spark.commands.common import options
from blumfeld_sink_spark.commands.common.edge import edge

CONTESTANTS = "jvm,python,direct,spark-zstd,spark-snappy"
REPEAT = {"depth": 10, "trade": 45, "bbo": 15}


@edge
def command(
    capture: Annotated[
        Path, typer.Argument(help="A capture of Binance's USD-M feed: `<ns> <JSON>` lines, .gz too.")
    ],
    bootstrap: Annotated[
        str, typer.Option(help="A running broker; topics bench-… are made there.")
    ] = "127.0.0.1:9092",
    command_config: options.CommandConfig = None,
    kinds: Annotated[str, typer.Option(help="depth, trade, bbo, with commas.")] = "depth,trade",
    contestants: Annotated[str, typer.Option(help="With commas; spark-… is Spark's own way.")] = CONTESTANTS,
    rounds: Annotated[int, typer.Option(min=1, max=50, help="Counted ones, after one that warms up.")] = 5,
    repeat: Annotated[
        int, typer.Option(help="Copies of the capture in each partition; 0 takes the kind's default.")
    ] = 0,
    partitions: int = 2,
    master: str = "local[2]",
    out: Annotated[Path | None, typer.Option(help="Write everything there as JSON.")] = None,
) -> None:
    """Compare rate and size with Spark's Kafka connector, from_json and Parquet sink: same feed, cores and JVM."""
    import msgspec
    from rich.console import Console

    from blumfeld_sink_spark.bench import contest, feeds
    from blumfeld_sink_spark.bench.table import table
    from blumfeld_sink_spark.settings import load
    from blumfeld_sink_spark.spark.runtime.session import connector_jars, open_session

    console = Console(width=None if sys.stdout.isatty() else 120)
    chosen = contestants.split(",")
    given: dict[str, Any] = {
        "bootstrap": bootstrap,
        "command_config": command_config,
        "topics": ["bench"],
        "master": master,
        "name": "bench",
    }
    settings = load(None, given)
    contest.check(chosen, connector_jars(settings))
    filled = []
    for kind in kinds.split(","):
        filled.append(feeds.fill(settings, capture, kind, repeat or REPEAT[kind], partitions))
        console.print(
            f"{filled[-1].topic}: {filled[-1].messages:,} messages, {filled[-1].bytes / 1e6:.1f} MB"
        )
    session = open_session(settings, connector_jars(settings))
    try:
        with tempfile.TemporaryDirectory(prefix="blumfeld-archive-bench-") as folder:
            runs = contest.contest(
                session,
                settings,
                filled,
                chosen,
                rounds,
                Path(folder),
                lambda run: console.print(
                    f"round {run.round}: {run.kind} {run.contestant} {run.seconds:.2f} s, {run.rows:,} rows",
                    highlight=False,
                ),
            )
    finally:
        session.stop()
    made = contest.lines(runs, filled)
    console.print(table(made, rounds))
    document = {"feeds": filled, "runs": runs, "lines": made}
    if out is not None:
        out.write_bytes(msgspec.json.format(msgspec.json.encode(document)))
