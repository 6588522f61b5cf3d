"""Wiring: the plug-in's entry point and its hook."""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.spi.hooks import Composition, Metric, NoOptions, hookimpl
from blumfeld_replication_isr.replication import IsrReplication


class Plugin:
    """Makes the node's replication. Opens nothing."""

    options_class = NoOptions
    roles = ("replication",)

    def __init__(self) -> None:
        self._made: IsrReplication | None = None

    @hookimpl
    def blumfeld_make_replication(self, composition: Composition) -> IsrReplication:
        """The node's replication."""
        self._made = IsrReplication(composition)
        return self._made

    @hookimpl
    def blumfeld_metrics(self) -> Sequence[Metric]:
        """Changes of ISRs, and how far followers are behind."""
        return () if self._made is None else self._made.metrics()
