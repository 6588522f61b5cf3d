"""The plug-in's entry point and its hooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blumfeld.spi.hooks import hookimpl
from blumfeld_sink_spark.settings import ArchiveSettings


class Plugin:
    """Adds ``blumfeld archive`` to the command line. It imports neither Spark nor Arrow."""

    options_class = ArchiveSettings
    roles = ("sink",)

    @hookimpl
    def blumfeld_cli_commands(self) -> Sequence[Any]:
        """Returns the command ``archive`` with its verbs."""
        from blumfeld_sink_spark.commands import app

        return [app]
