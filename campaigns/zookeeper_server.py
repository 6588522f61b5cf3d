"""A real ZooKeeper server as a child process, for tests and campaigns.

It is looked for in this order: the folder of jars that ``BLUMFELD_ZOOKEEPER_JARS`` names, the package ``zookeeper`` of
Debian (``/usr/share/java``), the script that starts Apache Kafka (:mod:`campaigns.references`), whose verb
``zookeeper`` starts a server.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from blumfeld.testing.cluster import LOOPBACK, NodePlace
from blumfeld.testing.process import free_port
from blumfeld_kit.cluster import Node
from campaigns.references import default_folder, find_references

JARS_VARIABLE = "BLUMFELD_ZOOKEEPER_JARS"
"""Environment variable with a folder that has the jars of a ZooKeeper server."""
DEBIAN_JARS = Path("/usr/share/java")
MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
ZOOKEEPER = 0
"""Stands for the server among the ids of nodes."""
TICK_MS = 500
"""So that a session's timeout may be a second."""


def jars_folder() -> Path | None:
    """Return the folder with the jars of a ZooKeeper server, or ``None``: this machine has none, or no Java."""
    jars = os.environ.get(JARS_VARIABLE)
    folder = Path(jars) if jars else DEBIAN_JARS if (DEBIAN_JARS / "zookeeper.jar").exists() else None
    return folder if shutil.which("java") is not None else None


def server_command(
    folder: Path, port: int, settings: Mapping[str, object] | None = None
) -> Sequence[str] | None:
    """Return the command of a server that keeps its data in ``folder``, or ``None``: there is none on this machine.

    :param settings: more lines of its configuration; those with TLS have no port without it
    """
    jars = jars_folder()
    if jars is not None:
        configuration = _configuration(folder, port, settings or {})
        return ["java", "-Xmx512m", "-cp", f"{jars}/*", MAIN_CLASS, str(configuration)]
    for script in () if settings else find_references(default_folder())["peer"]:
        return [script, "zookeeper", str(folder), str(port)]
    return None


def _configuration(folder: Path, port: int, more: Mapping[str, object]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    secure = "secureClientPort" if any(name.startswith("ssl.") for name in more) else "clientPort"
    settings = {
        "dataDir": folder / "data",
        secure: port,
        f"{secure}Address": "127.0.0.1",
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
        self, folder: Path, settings: Mapping[str, object] | None = None, port: int | None = None
    ) -> None:
        """Nothing is started yet. One with TLS is launched only: it can't be asked whether it serves.

        :raises FileNotFoundError: this machine has no ZooKeeper server
        """
        port = port or free_port()
        command = server_command(folder, port, settings)
        if command is None:
            raise FileNotFoundError(
                f"no ZooKeeper server: name its jars in {JARS_VARIABLE}, or install Debian's package zookeeper"
            )
        super().__init__(NodePlace(ZOOKEEPER, LOOPBACK, port, port), command, folder)
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
