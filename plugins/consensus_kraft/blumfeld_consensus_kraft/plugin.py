"""The plug-in: the hook that makes the node's consensus."""

from __future__ import annotations

import msgspec

from blumfeld.spi.hooks import Composition, hookimpl
from blumfeld_consensus_kraft.kraft_metadata import KraftMetadata


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[consensus.options]``. Kafka has a key for everything else."""

    force_empty_metadata: bool = False
    """Start a new cluster although logs of topics are there and their metadata is not: see ``opening``. Meant for one
    start, by ``blumfeld run --force-empty-metadata``."""


class Plugin:
    """``consensus_kraft``. Making it opens nothing."""

    options_class: type[msgspec.Struct] = Options
    roles: tuple[str, ...] = ("consensus",)

    @hookimpl
    def blumfeld_make_consensus(self, composition: Composition) -> KraftMetadata:
        """The node's voter, which is the quorum."""
        return KraftMetadata(composition, force_empty_metadata=composition.options.force_empty_metadata)
