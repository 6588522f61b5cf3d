"""The plug-in: the hook that makes the node's consensus."""

from __future__ import annotations

import msgspec

from blumfeld.spi.consensus import ClusterMetadata
from blumfeld.spi.hooks import Composition, CompositionRefused, hookimpl


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[consensus.options]``. Kafka's keys ``zookeeper.session.timeout.ms``, ``zookeeper.connection.timeout.ms`` and
    ``zookeeper.max.in.flight.requests`` are gone from Kafka 4, so they are options here."""

    connect: str
    """``HOST:PORT,HOST:PORT/CHROOT``, as Kafka's ``zookeeper.connect``."""
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000


class Plugin:
    """``consensus_zk_compat``. Making it opens nothing."""

    options_class: type[msgspec.Struct] = Options
    roles: tuple[str, ...] = ("consensus",)

    @hookimpl
    def blumfeld_make_consensus(self, composition: Composition) -> ClusterMetadata:
        """Refused: it is being built."""
        raise CompositionRefused(
            "consensus.plugin",
            '"consensus_zk_compat"',
            '"consensus_kraft": the ZooKeeper mode is being built',
        )
