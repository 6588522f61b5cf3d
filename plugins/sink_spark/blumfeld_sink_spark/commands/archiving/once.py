"""``archive once``: archives the topics' present messages."""

from __future__ import annotations

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
    master: options.Master = None,
    sets: options.Sets = None,
    as_json: options.AsJson = False,
) -> None:
    """Archive the messages that the topics have now and the archive doesn't, and end."""
    given = locals()
    from blumfeld_sink_spark import settings
    from blumfeld_sink_spark.commands.common.live import run

    run(settings.load(config, options.overrides(given)), "once", as_json=as_json)
