"""The plug-in's entry point: the verbs ``new`` and ``simulate``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blumfeld.spi.hooks import NoOptions, hookimpl


class Plugin:
    """Adds ``blumfeld new`` and ``blumfeld simulate`` to the command line. It fills no role of a broker."""

    options_class = NoOptions
    roles = ()

    @hookimpl
    def blumfeld_cli_commands(self) -> Sequence[Any]:
        """Return both commands."""
        from blumfeld_kit.simulation.command import app as simulate
        from blumfeld_kit.templates.command import app as new

        return [new, simulate]
