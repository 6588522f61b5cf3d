"""The plug-in: the hook that makes the node's consensus."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from blumfeld.spi.context import ApiHandler
from blumfeld.spi.hooks import Composition, hookimpl
from blumfeld_consensus_kraft.kraft_metadata import KraftMetadata
from blumfeld_consensus_kraft.quorum.handlers import quorum_handlers


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[consensus.options]``. Kafka has a key for everything else."""

    force_empty_metadata: bool = False
    """Start a new cluster although logs of topics are there and their metadata is not: see ``opening``. Meant for one
    start, by ``blumfeld run --force-empty-metadata``."""
    notice_dead_nodes: bool = True
    """Notice at once that another node's process is gone, by its port that refuses connections (ADR 0033). Off: only
    by its silence, as Kafka does (``broker.session.timeout.ms``, ``controller.quorum.fetch.timeout.ms``)."""


class Plugin:
    """``consensus_kraft``. Making it opens nothing."""

    options_class: type[msgspec.Struct] = Options
    roles: tuple[str, ...] = ("consensus",)

    @hookimpl
    def blumfeld_make_consensus(self, composition: Composition) -> KraftMetadata:
        """The node's replica of the metadata log."""
        options = composition.options
        return KraftMetadata(
            composition,
            force_empty_metadata=options.force_empty_metadata,
            notice_dead=options.notice_dead_nodes,
        )

    @hookimpl
    def blumfeld_api_handlers(self, composition: Composition) -> Sequence[ApiHandler]:
        """The quorum's APIs."""
        metadata = composition.metadata
        assert isinstance(metadata, KraftMetadata)
        return quorum_handlers(
            lambda: metadata.replica.driver,
            lambda: metadata.replica.snapshot_exchange,
            lambda: metadata.replica.membership,
            metadata,
            composition.roles,
        )
