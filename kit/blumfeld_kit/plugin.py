"""The plug-in's entry point: the verb ``simulate``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blumfeld.spi.hooks import NoOptions, hookimpl


class Plugin:
    """Adds ``blumfeld simulate`` to the command line. It fills no role of a broker."""

    options_class = NoOptions
    roles = ()

    @hookimpl
    def blumfeld_cli_commands(self) -> Sequence[Any]:
        """Return the command ``simulate``."""
        from blumfeld_kit.simulation.command import app

        return [app]
