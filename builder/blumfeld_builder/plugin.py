"""The plug-in's entry point: the verb ``build``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blumfeld.spi.hooks import NoOptions, hookimpl


class Plugin:
    """Adds ``blumfeld build`` to the command line. It fills no role of a broker."""

    options_class = NoOptions
    roles = ()

    @hookimpl
    def blumfeld_cli_commands(self) -> Sequence[Any]:
        """Return the command ``build``."""
        from blumfeld_builder.command import app

        return [app]
