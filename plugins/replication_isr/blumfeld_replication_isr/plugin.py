"""Wiring: the plug-in's entry point and its hook."""

from __future__ import annotations

from blumfeld.spi.hooks import Composition, NoOptions, hookimpl
from blumfeld_replication_isr.replication import IsrReplication


class Plugin:
    """Makes the node's replication. Opens nothing."""

    options_class = NoOptions
    roles = ("replication",)

    @hookimpl
    def blumfeld_make_replication(self, composition: Composition) -> IsrReplication:
        """The node's replication."""
        return IsrReplication(composition)
