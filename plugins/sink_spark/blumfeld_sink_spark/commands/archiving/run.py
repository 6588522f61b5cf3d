"""``archive run``: archives all messages of the topics until it is stopped."""

from __future__ import annotations

from typing import Annotated

import typer

from blumfeld_sink_spark.commands.common import options
from blumfeld_sink_spark.commands.common.edge import edge


@edge
def command(
    config: options.Config = None,
    bootstrap: options.Bootstrap = None,
    command_config: options.CommandConfig = None,
    topics: options.Topics = None,
    topic_pattern: options.TopicPattern = None,
    root: options.Root = None,
    name: options.Name = None,
    decoders: options.DecoderNames = None,
    reader: options.Reader = None,
    starting: options.Starting = None,
    max_offsets_per_trigger: options.MaxOffsets = None,
    trigger_ms: Annotated[int | None, typer.Option(help="Time between two batches. [default: 10000]")] = None,
    reconnect_timeout_ms: Annotated[
        int | None,
        typer.Option(help="Longest outage of the broker; -1: no limit. [default: 86400000, a day]"),
    ] = None,
    master: options.Master = None,
    sets: options.Sets = None,
    as_json: options.AsJson = False,
) -> None:
    """Archive present and future messages of the topics, a batch each trigger, until SIGTERM or Ctrl-C."""
    given = locals()
    from blumfeld_sink_spark import settings
    from blumfeld_sink_spark.commands.common.live import run

    run(settings.load(config, options.overrides(given)), "run", as_json=as_json)
