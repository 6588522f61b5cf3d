"""A variant's servers: one, or the nodes of a cluster on loopback, with fresh data and every process that they fork.

They start as the nodes of the kit do, by :func:`~blumfeld.testing.process.start_together`. They end in another way: a
foreign broker may be a script whose processes outlive it. The bench doesn't know the kit, whose users write plug-ins.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from blumfeld.client.blocking_connection import BlockingConnection
from blumfeld.client.security.command_config import PLAINTEXT, ClientSecurity
from blumfeld.kernel.runtime.process_ends import has_ended
from blumfeld.testing.cluster import LOOPBACK, filled, node_places
from blumfeld.testing.process import ASK_S, POLL_S, NodeError, NodeProcess, start_together
from blumfeld_bench.drivers.frames import CLIENT_ID
from blumfeld_bench.plan.variants import MANIFEST_FILE, VariantSpec
from blumfeld_bench.security import security_at
from blumfeld_bench.usage import Totals, reset_peak, totals, tree

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0

ServerError = NodeError
"""A server ended or never answered; the message ends with its output."""


class Server(NodeProcess):
    """A server with its data below ``folder``, in which it runs, and all the processes that it forks.

    :param cores: cores that all its processes are bound to
    :param bare: it is ready when it listens; any other when it answers ApiVersions
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        port: int,
        *,
        cores: frozenset[int] | None = None,
        bare: bool = False,
        start_timeout_s: float = READY_TIMEOUT_S,
        security: ClientSecurity = PLAINTEXT,
    ) -> None:
        prefix = ["env", f"--chdir={folder}"]
        if cores is not None:
            prefix += ["taskset", "-c", ",".join(map(str, sorted(cores)))]
        super().__init__(name, [*prefix, *command], folder / "log", (LOOPBACK, port), start_timeout_s)
        self.folder = folder
        self._bare = bare
        self._security = security

    def answers(self) -> bool:
        """Whether it is ready now."""
        return _listens(self.port) if self._bare else super().answers()

    def connect(self, timeout_s: float = ASK_S) -> BlockingConnection:
        """As ``NodeProcess.connect``, logged in."""
        return BlockingConnection(self.host, self.port, CLIENT_ID, timeout_s, security=self._security)

    def pids(self) -> list[int]:
        """Return the ids of all its processes, as of now; none before it is launched."""
        return [] if self._process is None else tree(self.pid)

    def totals(self) -> Totals:
        """Return what its processes have used so far."""
        return totals(self.pids())

    def totals_by_node(self) -> list[Totals]:
        """Return what it has used so far, in a list as for a cluster with one node."""
        return [self.totals()]

    def reset_peak(self) -> None:
        """Restart the count of the highest resident set."""
        reset_peak(self.pids())

    def end(self, number: signal.Signals = signal.SIGTERM, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Send a signal to all its processes, and wait until the first has ended. Its data is kept.

        :raises subprocess.TimeoutExpired: it goes on
        """
        self._signal_all(number)
        self.wait(timeout_s)

    def stop(self) -> int:
        """End all its processes: SIGTERM, then SIGKILL after 15 s. Its data is removed, its output is kept. Return the
        exit status.
        """
        stop([self])
        return self.wait(0)


def stop(servers: Sequence[Server], timeout_s: float = STOP_TIMEOUT_S) -> None:
    """End servers together: SIGTERM to all their processes, then SIGKILL. Their data is removed, their output is kept.

    SIGTERM is sent once: a second one would end a node of this build at once.
    """
    pids = [server.pids() for server in servers]
    for server in servers:
        server._signal_all(signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    for server, its in zip(servers, pids, strict=True):
        server.await_end(max(0.0, deadline - time.monotonic()))
        _await_end([pid for pid in its if pid != server.pid])
        shutil.rmtree(server.folder / "data", ignore_errors=True)


def start_server(
    name: str,
    command: Sequence[str],
    folder: Path,
    *,
    port: int = 0,
    files: Mapping[str, str] | None = None,
    cores: frozenset[int] | None = None,
    bare: bool = False,
    security: ClientSecurity = PLAINTEXT,
) -> Server:
    """Start a server with fresh data below ``folder``; return when it is ready. See :class:`Server`.

    :param command: see :mod:`blumfeld.testing.cluster` for what is filled in
    :param port: 0 for any free one
    :param files: written to the folder first
    :raises ServerError: the server did not start
    """
    places = node_places([LOOPBACK], port)
    words = filled(command, places[0], places, folder)
    server = Server(name, words, folder, places[0].port, cores=cores, bare=bare, security=security)
    _write_files(folder, files or {})
    try:
        server.start()
    except BaseException:
        server.stop()
        raise
    return server


def _write_files(folder: Path, files: Mapping[str, str]) -> None:
    folder.mkdir(parents=True)
    for file, text in files.items():
        (folder / file).write_text(text, encoding="utf-8")


@attrs.define
class ServerCluster:
    """The nodes of a cluster that is up. Clients begin at the first one."""

    name: str
    nodes: tuple[Server, ...]
    folder: Path
    ready_s: float = 0.0
    """Time from the start of the first process until every node knew all of them."""

    @property
    def pid(self) -> int:
        """The id of the first node's process."""
        return self.nodes[0].pid

    @property
    def port(self) -> int:
        """The first node's port."""
        return self.nodes[0].port

    def pids(self) -> list[int]:
        """Return the ids of all processes of all nodes, as of now."""
        return sorted(pid for node in self.nodes for pid in node.pids())

    def totals_by_node(self) -> list[Totals]:
        """Return what each node has used so far."""
        return [node.totals() for node in self.nodes]

    def reset_peak(self) -> None:
        """Restart the count of the highest resident set."""
        reset_peak(self.pids())

    @property
    def is_up(self) -> bool:
        """Whether every node still runs."""
        return all(node.is_up for node in self.nodes)

    def printed(self) -> str:
        """Return the end of each node's output, beginning with the nodes that have ended."""
        ordered = sorted(self.nodes, key=lambda node: node.is_up)
        return "\n".join(f"{node.name}:\n{node.printed()}" for node in ordered)

    def stop(self) -> None:
        """End all nodes at once: SIGTERM, then SIGKILL after 15 s. Their data is removed, their output is kept."""
        stop(self.nodes)


def start_variant(
    spec: VariantSpec, folder: Path, cores: frozenset[int] | None = None
) -> Server | ServerCluster:
    """Start a variant's server, or all nodes of its cluster, each in a folder of its own, with fresh data below
    ``folder``.

    :raises ServerError: a process did not start
    """
    files = {} if spec.variant.manifest is None else {MANIFEST_FILE: spec.variant.manifest}
    variant = spec.variant
    security = security_at(variant.command_config)
    if variant.nodes == 1:
        return start_server(
            variant.label,
            variant.command,
            folder,
            port=spec.port,
            files=files,
            cores=cores,
            security=security,
        )
    places = node_places([LOOPBACK] * variant.nodes, spec.port)
    nodes: list[Server] = []
    for place in places:
        home = folder / f"node{place.id}"
        words = filled(variant.command, place, places, home)
        timeout_s = READY_TIMEOUT_S * variant.nodes
        name = f"{variant.label}, node {place.id}"
        nodes.append(
            Server(name, words, home, place.port, cores=cores, start_timeout_s=timeout_s, security=security)
        )
        _write_files(home, files)
    try:
        start_together(nodes, nodes)
    except BaseException:
        stop(nodes)
        raise
    return ServerCluster(variant.label, tuple(nodes), folder, max(node.ready_s for node in nodes))


@contextmanager
def started(
    spec: VariantSpec, folder: Path, cores: frozenset[int] | None = None
) -> Iterator[Server | ServerCluster | None]:
    """Yield a variant's server with fresh data below ``folder``, None for one that somebody else started. It is stopped
    afterwards, and its data is removed.

    :raises ServerError: a process did not start
    """
    if spec.variant.kind == "running":
        yield None
        return
    server = start_variant(spec, folder, cores)
    try:
        yield server
    finally:
        server.stop()


def _await_end(pids: Sequence[int]) -> None:
    """Wait for processes that outlive their leader; kill them if they take too long."""
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while not all(map(has_ended, pids)) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    for pid in itertools.filterfalse(has_ended, pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _listens(port: int) -> bool:
    """Whether this port accepts a connection now."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1):
            return True
    except OSError:
        return False


def drop_from_page_cache(folder: Path) -> int:
    """Write dirty data below ``folder`` to the disk, then drop all of it from the page cache; return the bytes of its
    files.

    Files that a process has mapped (Kafka's indexes) stay cached. A file system in memory has nothing that can be
    dropped.
    """
    total_bytes = 0
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            total_bytes += os.fstat(file).st_size
        finally:
            os.close(file)
    return total_bytes
