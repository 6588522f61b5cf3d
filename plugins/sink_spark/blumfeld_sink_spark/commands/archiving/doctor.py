"""``archive doctor``: checks all that an archive needs, and runs a short stream with each reader."""

from __future__ import annotations

from typing import Annotated

import typer

from blumfeld_sink_spark.commands.common import options
from blumfeld_sink_spark.commands.common.edge import FAILED, edge


@edge
def command(
    config: options.Config = None,
    bootstrap: options.Bootstrap = None,
    command_config: options.CommandConfig = None,
    topics: options.Topics = None,
    topic_pattern: options.TopicPattern = None,
    root: options.Root = None,
    decoders: options.DecoderNames = None,
    reader: options.Reader = None,
    master: options.Master = None,
    sets: options.Sets = None,
    smoke: Annotated[bool, typer.Option(help="Run a short stream with each reader.")] = True,
    share_classes: Annotated[
        bool, typer.Option("--share-classes", help="Keep the JVM's classes (150 MB): Spark starts faster.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Check Java, Spark, the connector, the broker, topics and the root, then stream a little with each reader."""
    given = locals()
    import msgspec
    from rich.console import Console

    from blumfeld_sink_spark import settings
    from blumfeld_sink_spark.spark.checks import check_all

    config_settings = settings.load(config, options.overrides(given), topics_needed=False)
    console = Console(soft_wrap=True)
    colours = {"ok": "green", "note": "yellow", "failed": "red"}
    failed = False
    for finding in check_all(config_settings, smoke=smoke, classes=share_classes):
        failed = failed or finding.grade == "failed"
        if as_json:
            typer.echo(msgspec.json.encode(finding))
            continue
        colour = colours[finding.grade]
        console.print(f"[{colour}]{finding.grade:6}[/] {finding.about}: ", end="")
        console.print(finding.text, markup=False, highlight=False)
    if failed:
        raise typer.Exit(FAILED)
