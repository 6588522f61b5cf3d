"""``archive backfill``: archives the messages between two times or offsets."""

from __future__ import annotations

import hashlib
from typing import Annotated

import msgspec
import typer

from blumfeld_sink_spark.commands.common import options
from blumfeld_sink_spark.commands.common.edge import edge
from blumfeld_sink_spark.settings import ArchiveSettings

WHEN = "A time (2024-08-08, 2024-08-08T12:00Z), ms since the epoch, or offsets as JSON"


@edge
def command(
    start: Annotated[str, typer.Option("--from", help=f"{WHEN}, or earliest.")],
    to: Annotated[str, typer.Option("--to", help=f"{WHEN}, or latest: the end as it is now.")] = "latest",
    config: options.Config = None,
    bootstrap: options.Bootstrap = None,
    command_config: options.CommandConfig = None,
    topics: options.Topics = None,
    topic_pattern: options.TopicPattern = None,
    root: options.Root = None,
    name: options.Name = None,
    decoders: options.DecoderNames = None,
    reader: options.Reader = None,
    max_offsets_per_trigger: options.MaxOffsets = None,
    master: options.Master = None,
    sets: options.Sets = None,
    as_json: options.AsJson = False,
) -> None:
    """Archive a part of the topics that isn't archived yet.

    Run again after a stop, it goes on. Offsets that are archived under the same root are left out.
    """
    given = locals()
    from blumfeld_sink_spark import settings
    from blumfeld_sink_spark.commands.common.live import run
    from blumfeld_sink_spark.commands.common.times import position

    bounds = {"starting": position(start, "--from"), "ending": position(to, "--to")}
    config_settings = settings.load(config, options.overrides(given | bounds))
    run(config_settings if name else of_its_own(config_settings), "backfill", as_json=as_json)


def of_its_own(settings: ArchiveSettings) -> ArchiveSettings:
    """Returns settings with a name and checkpoint of the backfill's own, beside the live archive's.

    They follow from topics and bounds, so the same command finds its checkpoint again and goes on.
    """
    what = "\0".join((*sorted(settings.topics), settings.topic_pattern, settings.starting, settings.ending))
    suffix = f"-backfill-{hashlib.sha256(what.encode()).hexdigest()[:8]}"
    return msgspec.structs.replace(
        settings,
        name=settings.name + suffix,
        checkpoint=settings.checkpoint.rstrip("/") + suffix if settings.checkpoint else "",
    )
