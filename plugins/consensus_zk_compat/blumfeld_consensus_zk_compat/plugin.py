"""The plug-in: the hooks that make the node's consensus and its APIs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from blumfeld.spi.context import ApiHandler
from blumfeld.spi.hooks import Composition, CompositionRefused, Metric, hookimpl
from blumfeld.spi.zookeeper import ZooKeeper
from blumfeld_consensus_zk_compat.counts import metrics
from blumfeld_consensus_zk_compat.migration.zk_migration import ZkMigration
from blumfeld_consensus_zk_compat.options import Options, access_of
from blumfeld_consensus_zk_compat.zk_metadata import ZkMetadata
from blumfeld_consensus_zk_compat.zookeeper import INSTALL, client_is_installed, open_session, parse_connect


class Plugin:
    """``consensus_zk_compat``. Making it opens nothing."""

    options_class: type[msgspec.Struct] = Options
    roles: tuple[str, ...] = ("consensus", "migration")
    quorum = False

    def __init__(self) -> None:
        self._made: ZkMetadata | None = None

    def zookeeper(self, composition: Composition, *, create_chroot: bool) -> ZooKeeper:
        """A session that isn't connected. A simulation gives its own.

        :param create_chroot: create the chroot, if it isn't there; otherwise a session without it can't be used
        """
        access = access_of(composition.options, create_chroot=create_chroot)
        return open_session(composition.runtime, access)

    def check_client(self) -> None:
        """Check that a session can be had. A simulation's always can.

        :raises CompositionRefused: the client library isn't installed
        """
        if not client_is_installed():
            found = "the plug-in consensus_zk_compat without the client of ZooKeeper, kazoo"
            raise CompositionRefused("", found, f"it with {INSTALL}")

    @hookimpl
    def blumfeld_make_consensus(self, composition: Composition) -> ZkMetadata:
        """The node's part in the cluster."""
        self.check_client()
        options = composition.options
        self._made = ZkMetadata(
            composition,
            lambda create_chroot: self.zookeeper(composition, create_chroot=create_chroot),
            connect=options.connect,
            chroot=parse_connect(options.connect).chroot,
            connection_timeout_ms=options.connection_timeout_ms,
            in_migration=options.metadata_migration_enable,
        )
        return self._made

    @hookimpl
    def blumfeld_make_migration(self, composition: Composition) -> ZkMigration:
        """The part of a controller of KRaft in the migration of a cluster to it."""
        self.check_client()
        options = composition.options
        return ZkMigration(
            composition,
            lambda: self.zookeeper(composition, create_chroot=False),
            chroot=parse_connect(options.connect).chroot,
            connection_timeout_ms=options.connection_timeout_ms,
            request_bytes_max=options.request_bytes_max,
            listener=options.inter_broker_listener,
        )

    @hookimpl
    def blumfeld_api_handlers(self, composition: Composition) -> Sequence[ApiHandler]:
        """What a controller orders, and what brokers ask their controller for."""
        metadata, migration = composition.metadata, composition.migration
        if isinstance(migration, ZkMigration):
            return migration.handlers()
        assert isinstance(metadata, ZkMetadata)
        return metadata.handlers()

    @hookimpl
    def blumfeld_cli_commands(self) -> Sequence[Any]:
        """The command ``migrate`` with its verbs."""
        from blumfeld_consensus_zk_compat.commands import app

        return [app]

    @hookimpl
    def blumfeld_metrics(self) -> Sequence[Metric]:
        """What this node counts of its ZooKeeper."""
        return () if self._made is None else metrics(self._made.counts)
