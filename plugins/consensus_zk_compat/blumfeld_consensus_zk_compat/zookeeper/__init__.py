"""The edge: the client library of ZooKeeper, whose thread ends here."""

from __future__ import annotations

from importlib.util import find_spec

from blumfeld.spi.runtime import Runtime
from blumfeld.spi.zookeeper import ZooKeeper
from blumfeld_consensus_zk_compat.zookeeper.options import Access, ConnectString, Tls, parse_connect

__all__ = [
    "INSTALL",
    "Access",
    "ConnectString",
    "Tls",
    "client_is_installed",
    "open_session",
    "parse_connect",
]

INSTALL = "pip install blumfeld-consensus-zk-compat"
"""The command that brings the client library."""


def client_is_installed() -> bool:
    """Return whether :func:`open_session` has what it needs. Imports nothing."""
    return find_spec("kazoo") is not None


def open_session(runtime: Runtime, access: Access) -> ZooKeeper:
    """Return a session of a real ZooKeeper, which ``connect`` begins. Opens no connection.

    :raises OSError: a file of TLS can't be read
    """
    if access.tls is not None:
        access.tls.check_files(runtime.files)
    from blumfeld_consensus_zk_compat.zookeeper.kazoo_session import KazooZooKeeper

    return KazooZooKeeper(runtime, access)
