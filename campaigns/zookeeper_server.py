"""A real ZooKeeper server as a child process, for tests and campaigns.

It is looked for in this order: the folder of jars that ``BLUMFELD_ZOOKEEPER_JARS`` names, the package ``zookeeper`` of
Debian (``/usr/share/java``), the script that starts Apache Kafka (:mod:`campaigns.references`), whose verb
``zookeeper`` starts a server.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from campaigns.references import default_folder, find_references

JARS_VARIABLE = "BLUMFELD_ZOOKEEPER_JARS"
"""Environment variable with a folder that has the jars of a ZooKeeper server."""
DEBIAN_JARS = Path("/usr/share/java")
MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
START_S = 60
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


class ZooKeeperServer:
    """One server. :meth:`start` after :meth:`kill` finds what it had acknowledged."""

    def __init__(self, folder: Path, settings: Mapping[str, object] | None = None) -> None:
        with socket.socket() as any_port:
            any_port.bind(("127.0.0.1", 0))
            self.port: int = any_port.getsockname()[1]
        command = server_command(folder, self.port, settings)
        if command is None:
            raise FileNotFoundError(
                f"no ZooKeeper server: name its jars in {JARS_VARIABLE}, or install Debian's package zookeeper"
            )
        self._command = command
        self._log = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, wait: bool = True) -> None:
        """Start the server, and wait until it serves. One with TLS can't be asked."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, start_new_session=True, stdin=subprocess.DEVNULL
            )
        end_s = time.monotonic() + START_S
        while wait and b"Zookeeper version" not in self._ask():
            if self._process.poll() is not None or time.monotonic() > end_s:
                tail = self._log.read_text(errors="replace")[-2_000:]
                self.kill()
                raise RuntimeError(f"ZooKeeper did not serve in {START_S} s: {tail}")
            time.sleep(0.05)

    def status(self) -> str:
        """Return the server's answer to ``srvr``, with its version and its mode; nothing if it doesn't answer."""
        return self._ask().decode()

    def _ask(self) -> bytes:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.settimeout(1)
                connection.sendall(b"srvr")
                return connection.recv(8192)
        except OSError:
            return b""

    def kill(self) -> None:
        """Kill the server: ``SIGKILL``."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Stop the server's process until :meth:`resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the server's process go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, number)
