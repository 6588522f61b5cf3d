"""How the servers are reached, as kazoo is told."""

from __future__ import annotations

import re

import msgspec

from blumfeld.spi.runtime import Files

_SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:/\s]+)(:[0-9]{1,5})?")


class Tls(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """TLS to the servers. Files are PEM: the JKS and PKCS12 stores of Kafka's ``zookeeper.ssl.*`` are not read."""

    ca_file: str = ""
    """The authorities that servers' certificates are checked with, besides the system's:
    ``zookeeper.ssl.truststore.location``."""
    certificate_file: str = ""
    """This client's own certificate: ``zookeeper.ssl.keystore.location``."""
    key_file: str = ""
    """Its key."""
    key_password: str = ""
    """``zookeeper.ssl.keystore.password``."""
    verify_host: bool = True
    """Whether a certificate must name the host: ``zookeeper.ssl.endpoint.identification.algorithm``."""

    def check_files(self, files: Files) -> None:
        """Read the files once: the client would try again and again, and not name them.

        :raises OSError: names the option and the file
        """
        for option in ("ca_file", "certificate_file", "key_file"):
            if path := getattr(self, option):
                try:
                    files.read_bytes(path)
                except OSError as error:
                    raise OSError(
                        f"consensus.options.tls.{option}: {error.strerror or error}: {path}"
                    ) from error


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a session of a real ZooKeeper needs to know."""

    servers: str
    """``HOST:PORT,HOST:PORT``."""
    chroot: str = ""
    """The path that all others are below, or nothing."""
    create_chroot: bool = True
    """Create the chroot if it isn't there, as Kafka's brokers do. Its tools don't."""
    session_timeout_ms: float = 18_000
    request_bytes_max: int = 0xFFFFF
    """``jute.maxbuffer``; the server's must be at least this."""
    digest: str = ""
    """``USER:PASSWORD`` of ZooKeeper's digest scheme, or nothing."""
    set_acl: bool = False
    """``zookeeper.set.acl``: nodes are created so that only this session's identity may change them."""
    tls: Tls | None = None


class ConnectString(msgspec.Struct, frozen=True):
    """The two parts of ``zookeeper.connect``."""

    servers: str
    chroot: str


def parse_connect(connect: str) -> ConnectString:
    """Split ``HOST:PORT,HOST:PORT/CHROOT``. A port may be left out: 2181.

    :raises ValueError: says what is wrong with which part
    """
    servers, slash, path = connect.partition("/")
    for server in servers.split(","):
        if _SERVER.fullmatch(server.strip()) is None:
            raise ValueError(f"{connect!r}: {server!r} is no HOST:PORT")
    chroot = f"/{path}".rstrip("/") if slash else ""
    if any(name in ("", ".", "..") for name in chroot.split("/")[1:]):
        raise ValueError(f"{connect!r}: {chroot!r} is no path of a znode")
    if "," in chroot:  # ZooKeeper would take it for a name, and the servers in it for none
        raise ValueError(
            f"{connect!r}: a server follows the chroot; allowed: one chroot, behind the last server"
        )
    return ConnectString(servers, chroot)
