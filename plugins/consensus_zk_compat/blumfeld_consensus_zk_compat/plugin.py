"""The plug-in: the hooks that make the node's consensus and its APIs."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from blumfeld.spi.context import ApiHandler
from blumfeld.spi.hooks import Composition, CompositionRefused, hookimpl
from blumfeld.spi.zookeeper import ZooKeeper
from blumfeld_consensus_zk_compat.zk_metadata import ZkMetadata

_CONNECT = re.compile(r"[^\s,/]+:\d{1,5}(,[^\s,/]+:\d{1,5})*(?P<chroot>(/[^\s/]+)*)/?")


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
    quorum = False

    def zookeeper(self, composition: Composition, *, create_chroot: bool) -> ZooKeeper:
        """A session that isn't connected. A simulation gives its own.

        :param create_chroot: create the chroot, if it isn't there; otherwise a session without it can't be used
        """
        raise CompositionRefused(
            "consensus.plugin", '"consensus_zk_compat"', "a build with a client of ZooKeeper"
        )

    @hookimpl
    def blumfeld_make_consensus(self, composition: Composition) -> ZkMetadata:
        """The node's part in the cluster."""
        options = composition.options
        connect = _CONNECT.fullmatch(options.connect)
        if connect is None:
            allowed = "HOST:PORT,HOST:PORT/CHROOT, as Kafka's zookeeper.connect"
            raise CompositionRefused("consensus.options.connect", f'"{options.connect}"', allowed)
        return ZkMetadata(
            composition,
            lambda create_chroot: self.zookeeper(composition, create_chroot=create_chroot),
            connect=options.connect,
            chroot=connect["chroot"],
            connection_timeout_ms=options.connection_timeout_ms,
        )

    @hookimpl
    def blumfeld_api_handlers(self, composition: Composition) -> Sequence[ApiHandler]:
        """What a controller orders, and what brokers ask their controller for."""
        metadata = composition.metadata
        assert isinstance(metadata, ZkMetadata)
        return metadata.handlers()
