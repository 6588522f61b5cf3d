"""Real ZooKeeper servers as child processes, for tests and campaigns: one alone, or an ensemble of several.

A server is looked for in this order: the folder of jars that ``BLUMFELD_ZOOKEEPER_JARS`` names, the package
``zookeeper`` of Debian (``/usr/share/java``), the script that starts Apache Kafka (:mod:`campaigns.references`), whose
verb ``zookeeper`` starts a server.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from blumfeld.testing.cluster import LOOPBACK, NodePlace
from blumfeld.testing.process import free_port
from blumfeld_kit.cluster import REPLICAS, Node
from campaigns.consensus import KRAFT
from campaigns.references import default_folder, find_references

JARS_VARIABLE = "BLUMFELD_ZOOKEEPER_JARS"
"""Environment variable with a folder that has the jars of a ZooKeeper server."""
DEBIAN_JARS = Path("/usr/share/java")
MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
ZOOKEEPER = 0
"""Stands for the first server among the ids of nodes; -1 and so on stand for the others."""
TICK_MS = 500
"""So that a session's timeout may be a second."""
SESSION_TIMEOUT_MS = 3000
"""The session of a node with ZooKeeper is short in a campaign, so that a paused node soon loses it."""
CHROOT = "blumfeld"
"""The node below which a campaign's cluster keeps its tree."""
PORTS_PER_SERVER = 3
"""For clients, for the other servers, and for their elections."""
_LIMITS = {"initLimit": 40, "syncLimit": 10}
"""Ticks that a server may take to join its leader, and to follow it."""


def jars_folder() -> Path | None:
    """Return the folder with the jars of a ZooKeeper server, or ``None``: this machine has none, or no Java."""
    jars = os.environ.get(JARS_VARIABLE)
    folder = Path(jars) if jars else DEBIAN_JARS if (DEBIAN_JARS / "zookeeper.jar").exists() else None
    return folder if shutil.which("java") is not None else None


def server_command(
    folder: Path, port: int, settings: Mapping[str, object] | None = None, host: str = LOOPBACK
) -> Sequence[str] | None:
    """Return the command of a server that keeps its data in ``folder``, or ``None``: there is none on this machine.

    :param settings: more lines of its configuration; those with TLS have no port without it
    """
    jars = jars_folder()
    if jars is not None:
        configuration = _configuration(folder, host, port, settings or {})
        return ["java", "-Xmx512m", "-cp", f"{jars}/*", MAIN_CLASS, str(configuration)]
    for script in () if settings or host != LOOPBACK else find_references(default_folder())["peer"]:
        return [script, "zookeeper", str(folder), str(port)]
    return None


def _configuration(folder: Path, host: str, port: int, more: Mapping[str, object]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    secure = "secureClientPort" if any(name.startswith("ssl.") for name in more) else "clientPort"
    settings = {
        "dataDir": folder / "data",
        secure: port,
        f"{secure}Address": host,
        "tickTime": TICK_MS,
        "admin.enableServer": "false",
        "maxClientCnxns": 0,
        "4lw.commands.whitelist": "srvr",
        **more,
    }
    path = folder / "zoo.cfg"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


class ZooKeeperServer(Node):
    """One server. :meth:`start` after :meth:`kill` finds what it had acknowledged."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, object] | None = None,
        port: int | None = None,
        nth: int = 0,
        host: str = LOOPBACK,
        prefix: Sequence[str] = (),
    ) -> None:
        """Nothing is started yet. One with TLS is launched only: it can't be asked whether it serves.

        :param nth: its place in its ensemble, from 0 on
        :param prefix: a command that runs the server's command and keeps its process id
        :raises FileNotFoundError: this machine has no ZooKeeper server
        """
        port = port or free_port()
        command = server_command(folder, port, settings, host)
        if command is None:
            raise FileNotFoundError(
                f"no ZooKeeper server: name its jars in {JARS_VARIABLE}, or install Debian's package zookeeper"
            )
        super().__init__(NodePlace(ZOOKEEPER - nth, host, port, port), [*prefix, *command], folder)
        self.name = "ZooKeeper"

    def answers(self) -> bool:
        """Whether it serves now."""
        return "Zookeeper version" in self.status()

    def status(self) -> str:
        """Return the server's answer to ``srvr``, with its version and its mode; nothing if it doesn't answer."""
        with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), 1) as connection:
            connection.settimeout(1)
            connection.sendall(b"srvr")
            return connection.recv(8192).decode()
        return ""


def zookeeper_settings(connect: str, session_timeout_ms: int, nodes: int = REPLICAS) -> tuple[str, ...]:
    """Return the settings of nodes of this build that keep their metadata in a ZooKeeper.

    :param connect: ``HOST:PORT,…/CHROOT``
    :param nodes: a node on a ZooKeeper doesn't know how many there are, so few of them are told of their replicas
    """
    few = (f"{topic}.replication.factor" for topic in ("offsets.topic", "transaction.state.log"))
    return (
        'consensus.plugin="consensus_zk_compat"',
        f'consensus.options.connect="{connect}"',
        f"consensus.options.session_timeout_ms={session_timeout_ms}",
        *(f'config."{name}"=1' for name in few if nodes < REPLICAS),
    )


def zookeeper_ensemble(
    folder: Path,
    count: int = 1,
    first_port: int = 0,
    hosts: Sequence[str] = (),
    prefixes: Sequence[Sequence[str]] = (),
) -> tuple[ZooKeeperServer, ...]:
    """Return the servers of one ensemble, not started. Several elect a leader among them.

    :param hosts: of each; loopback if not given
    :param prefixes: for each a command that runs the server's command and keeps its process id
    :param first_port: the servers take the ports from here on, :data:`PORTS_PER_SERVER` each; 0 takes free ones
    :raises FileNotFoundError: this machine has no ZooKeeper server, or only a script that starts single ones
    """
    first = first_port or free_port(adjacent=PORTS_PER_SERVER * count)
    homes, before = hosts or [LOOPBACK] * count, prefixes or [()] * count
    if count == 1:
        return (ZooKeeperServer(folder, port=first, host=homes[0], prefix=before[0]),)
    peers = first + count
    members = {
        f"server.{nth + 1}": f"{homes[nth]}:{peers + 2 * nth}:{peers + 2 * nth + 1}" for nth in range(count)
    }
    servers = []
    for nth in range(count):
        data = folder / str(nth + 1) / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(str(nth + 1))
        settings = {**members, **_LIMITS}
        servers.append(ZooKeeperServer(data.parent, settings, first + nth, nth, homes[nth], before[nth]))
    return tuple(servers)


@contextlib.contextmanager
def running(servers: Sequence[ZooKeeperServer]) -> Iterator[str]:
    """Start the servers of an ensemble, and end them. Give ``HOST:PORT,…`` of all.

    :raises NodeError: one doesn't serve in time
    """
    try:
        for server in servers:
            server.launch()
        for server in servers:
            server.await_ready()
        yield ",".join(server.place.address for server in servers)
    finally:
        for server in servers:
            server.kill()


@contextlib.contextmanager
def consensus_settings(consensus: str, folder: Path, nodes: int) -> Iterator[tuple[str, ...]]:
    """Start what the nodes' consensus needs beside them, and end it. Give the nodes' settings.

    :param consensus: one of :data:`campaigns.consensus.CONSENSUS`
    :param folder: a ZooKeeper's data
    :raises FileNotFoundError: this machine has no ZooKeeper server
    :raises NodeError: it doesn't serve in time
    """
    if consensus == KRAFT:
        yield ()
        return
    with running(zookeeper_ensemble(folder)) as address:
        yield zookeeper_settings(f"{address}/{CHROOT}", SESSION_TIMEOUT_MS, nodes)


def leader_of(servers: Sequence[ZooKeeperServer]) -> ZooKeeperServer | None:
    """Return the server that leads, or stands alone; None while none does."""
    modes = ("Mode: leader", "Mode: standalone")
    return next((server for server in servers if any(mode in server.status() for mode in modes)), None)
