"""The options that ``run``, ``once``, ``backfill`` and ``doctor`` share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from blumfeld.client.security.command_config import HELP, METAVAR, OPTION

Config = Annotated[
    str | None, typer.Option(help="A TOML file with a section \\[archive]; options override it.")
]
Bootstrap = Annotated[str | None, typer.Option(help="bootstrap.servers")]
CommandConfig = Annotated[str | None, typer.Option(OPTION, metavar=METAVAR, help=HELP)]
Topics = Annotated[str | None, typer.Option(help="Names, with commas.")]
TopicPattern = Annotated[str | None, typer.Option(help="A regular expression, instead of names.")]
Root = Annotated[str | None, typer.Option(help="Where the archive lies: a folder or s3://….")]
Name = Annotated[str | None, typer.Option(help="Name of this archive under the root, and of its checkpoint.")]
DecoderNames = Annotated[
    list[str] | None, typer.Option("--decoder", help="NAME or TOPIC=NAME; may be repeated. [default: raw]")
]
Reader = Annotated[str | None, typer.Option(help="auto, jvm, python or direct. [default: auto]")]
Starting = Annotated[
    str | None,
    typer.Option(help="Begin of a new checkpoint: earliest, latest, timestamp:MS or offsets as JSON."),
]
MaxOffsets = Annotated[
    int | None,
    typer.Option(
        "--max-offsets-per-trigger", help="Offsets in one batch, over all partitions. [default: 0, all]"
    ),
]
Master = Annotated[str | None, typer.Option(help="Spark's master. [default: local[*]]")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other setting; spark.X and kafka.X too."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Progress as JSON lines on stdout.")]


def overrides(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those of a command's options that are settings, as ``settings.load`` takes them.

    Each of ``sets`` is a ``KEY=VALUE`` of ``--set``. Its value is JSON, or text where it isn't JSON.

    :raises SettingsError: a ``--set`` has no ``=``
    """
    import msgspec

    from blumfeld_sink_spark.errors import SettingsError
    from blumfeld_sink_spark.settings import ArchiveSettings

    names = ArchiveSettings.__struct_fields__
    values = {key: value for key, value in given.items() if key in names and value is not None}
    if "topics" in values:
        values["topics"] = [name.strip() for name in values["topics"].split(",") if name.strip()]
    for each in given.get("sets") or ():
        key, equals, text = each.partition("=")
        if not equals:
            raise SettingsError(f"--set {each}: allowed: KEY=VALUE")
        group, dot, rest = key.partition(".")
        if dot and group in ("spark", "kafka"):
            values.setdefault(group, {})[rest if group == "kafka" else key] = text
            continue
        try:
            values[key] = msgspec.json.decode(text)
        except msgspec.DecodeError:
            values[key] = text
    return values
