"""Wiring: the plug-in's entry point and its hooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from blumfeld.spi.hooks import Composition, hookimpl
from blumfeld_sink_spark.settings import ArchiveSettings

if TYPE_CHECKING:
    from blumfeld.spi.sink import Sink


class Plugin:
    """Brings ``blumfeld archive`` and the sink that it runs. Imports neither Spark nor Arrow."""

    options_class = ArchiveSettings
    roles = ("sink",)

    @hookimpl
    def blumfeld_cli_commands(self) -> Sequence[Any]:
        """The verbs of the archive."""
        from blumfeld_sink_spark.commands import app

        return [app]

    @hookimpl
    def blumfeld_make_sink(self, composition: Composition) -> Sink:
        """The pipeline of these options."""
        from blumfeld_sink_spark.sink import SparkSink

        return SparkSink(composition.options)
