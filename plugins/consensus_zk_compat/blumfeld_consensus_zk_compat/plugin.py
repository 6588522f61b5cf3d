"""The plug-in: the hooks that make the node's consensus and its APIs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from blumfeld.spi.context import ApiHandler
from blumfeld.spi.hooks import Composition, Metric, hookimpl
from blumfeld.spi.zookeeper import ZooKeeper
from blumfeld_consensus_zk_compat.counts import metrics
from blumfeld_consensus_zk_compat.zk_metadata import ZkMetadata
from blumfeld_consensus_zk_compat.zookeeper import Access, Tls, open_session, parse_connect


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[consensus.options]``. Kafka's keys ``zookeeper.*`` are gone from Kafka 4, so they are options here."""

    connect: str
    """``HOST:PORT,HOST:PORT/CHROOT``, as Kafka's ``zookeeper.connect``."""
    session_timeout_ms: Annotated[int, msgspec.Meta(ge=1)] = 18_000
    connection_timeout_ms: Annotated[int, msgspec.Meta(ge=1)] = 18_000
    request_bytes_max: Annotated[int, msgspec.Meta(ge=1_024)] = 0xFFFFF
    """``jute.maxbuffer``; the server's must be at least this."""
    digest: str = ""
    """``USER:PASSWORD`` of ZooKeeper's digest scheme, or nothing."""
    set_acl: bool = False
    """``zookeeper.set.acl``: nodes are created so that only this identity may change them."""
    tls: Tls | None = None

    def __post_init__(self) -> None:
        parse_connect(self.connect)
        if self.digest and not self.digest.partition(":")[2]:
            raise ValueError("digest has no password; allowed: USER:PASSWORD")
        if self.set_acl and not (self.digest or (self.tls and self.tls.certificate_file)):
            raise ValueError(
                "set_acl lets only this node's identity change what it writes, and it has none: "
                "give digest or tls.certificate_file"
            )


class Plugin:
    """``consensus_zk_compat``. Making it opens nothing."""

    options_class: type[msgspec.Struct] = Options
    roles: tuple[str, ...] = ("consensus",)
    quorum = False

    def __init__(self) -> None:
        self._made: ZkMetadata | None = None

    def zookeeper(self, composition: Composition, *, create_chroot: bool) -> ZooKeeper:
        """A session that isn't connected. A simulation gives its own.

        :param create_chroot: create the chroot, if it isn't there; otherwise a session without it can't be used
        """
        options, connect = composition.options, parse_connect(composition.options.connect)
        access = Access(
            servers=connect.servers,
            chroot=connect.chroot,
            create_chroot=create_chroot,
            session_timeout_ms=options.session_timeout_ms,
            request_bytes_max=options.request_bytes_max,
            digest=options.digest,
            set_acl=options.set_acl,
            tls=options.tls,
        )
        return open_session(composition.runtime, access)

    @hookimpl
    def blumfeld_make_consensus(self, composition: Composition) -> ZkMetadata:
        """The node's part in the cluster."""
        options = composition.options
        self._made = ZkMetadata(
            composition,
            lambda create_chroot: self.zookeeper(composition, create_chroot=create_chroot),
            connect=options.connect,
            chroot=parse_connect(options.connect).chroot,
            connection_timeout_ms=options.connection_timeout_ms,
        )
        return self._made

    @hookimpl
    def blumfeld_api_handlers(self, composition: Composition) -> Sequence[ApiHandler]:
        """What a controller orders, and what brokers ask their controller for."""
        metadata = composition.metadata
        assert isinstance(metadata, ZkMetadata)
        return metadata.handlers()

    @hookimpl
    def blumfeld_metrics(self) -> Sequence[Metric]:
        """What this node counts of its ZooKeeper."""
        return () if self._made is None else metrics(self._made.counts)
