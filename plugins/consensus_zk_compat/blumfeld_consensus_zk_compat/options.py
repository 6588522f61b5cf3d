"""The plug-in's options in a manifest."""

from __future__ import annotations

from typing import Annotated

import msgspec

from blumfeld_consensus_zk_compat.zookeeper import Access, Tls, parse_connect


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
    metadata_migration_enable: bool = False
    """``zookeeper.metadata.migration.enable``: of a broker that is to obey KRaft's controllers once they have taken
    the cluster over."""
    inter_broker_listener: str = ""
    """``inter.broker.listener.name``, for ``[migration]`` only: the listener at which the controllers reach brokers; ""
    is the first one of each broker."""

    def __post_init__(self) -> None:
        parse_connect(self.connect)
        if self.digest and not self.digest.partition(":")[2]:
            raise ValueError("digest has no password; allowed: USER:PASSWORD")
        if self.set_acl and not (self.digest or (self.tls and self.tls.certificate_file)):
            raise ValueError(
                "set_acl lets only this node's identity change what it writes, and it has none: "
                "give digest or tls.certificate_file"
            )


def access_of(options: Options, *, create_chroot: bool) -> Access:
    """Returns how the ZooKeeper of these options is reached."""
    connect = parse_connect(options.connect)
    return Access(
        servers=connect.servers,
        chroot=connect.chroot,
        create_chroot=create_chroot,
        session_timeout_ms=options.session_timeout_ms,
        request_bytes_max=options.request_bytes_max,
        digest=options.digest,
        set_acl=options.set_acl,
        tls=options.tls,
    )
