"""A variant's servers: one, or the nodes of a cluster on loopback, with fresh data and every process that they fork."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from blumfeld.kernel.runtime.process_ends import has_ended
from blumfeld.testing import process as node_process
from blumfeld.testing.cluster import LOOPBACK, NodePlace, filled, node_places
from blumfeld.testing.process import NodeError, NodeProcess
from blumfeld_bench.drivers.contract import DriverError
from blumfeld_bench.drivers.wire_client import WireClient
from blumfeld_bench.plan.variants import MANIFEST_FILE, VariantSpec
from blumfeld_bench.usage import Totals, reset_peak, totals, tree

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
ASK_TIMEOUT_S = 5.0
POLL_S = 0.002
API_VERSIONS_V0 = bytes.fromhex("0000000a 0012 0000 00000001 ffff".replace(" ", ""))

ServerError = NodeError
"""A server ended or never answered; the message ends with its output."""


class Server(NodeProcess):
    """A server with its data below ``folder``, in which it runs, and all the processes that it forks.

    :param cores: cores that all its processes are bound to
    :param is_ready: tells whether the server on this port is ready; the default asks for ApiVersions
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        port: int,
        *,
        cores: frozenset[int] | None = None,
        is_ready: Callable[[int], bool] | None = None,
    ) -> None:
        prefix = ["env", f"--chdir={folder}"]
        if cores is not None:
            prefix += ["taskset", "-c", ",".join(map(str, sorted(cores)))]
        super().__init__(name, [*prefix, *command], folder / "log", (LOOPBACK, port), READY_TIMEOUT_S)
        self.folder = folder
        self.ready_s = 0.0
        """Time from the start of its process until it was ready."""
        self._is_ready = is_ready or answers
        self._began = 0.0

    def launch(self) -> None:
        """Start its process without waiting."""
        self._began = time.perf_counter()
        super().launch()

    def answers(self) -> bool:
        """Whether it is ready."""
        return self._is_ready(self.port)

    def await_ready(self, timeout_s: float | None = None) -> None:
        """Wait until it is ready, to 2 ms.

        :raises ServerError: it ended, or took longer
        """
        limit_s = self.start_timeout_s if timeout_s is None else timeout_s
        while not self.answers():
            if not self.is_up or time.perf_counter() - self._began > limit_s:
                raise ServerError(f"{self.name} did not start:\n{self.printed()}")
            time.sleep(POLL_S)
        self.ready_s = time.perf_counter() - self._began

    def pids(self) -> list[int]:
        """Return the ids of all its processes, as of now."""
        return tree(self.pid)

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
    is_ready: Callable[[int], bool] | None = None,
) -> Server:
    """Start a server with fresh data below ``folder``; return when it is ready. See :class:`Server`.

    :param command: ``{port}`` and ``{folder}`` in it are filled in
    :param port: 0 for any free one
    :param files: written to the folder first
    :raises ServerError: the server did not start
    """
    port = port or free_port()
    words = [part.replace("{port}", str(port)).replace("{folder}", str(folder)) for part in command]
    server = Server(name, words, folder, port, cores=cores, is_ready=is_ready)
    write_files(folder, files or {})
    server.launch()
    try:
        server.await_ready()
    except BaseException:
        server.stop()
        raise
    return server


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Make a server's folder, and write files to it."""
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
    """Start a variant's server, or all nodes of its cluster, with fresh data below ``folder``.

    :raises ServerError: a process did not start
    """
    variant = spec.variant
    files = {} if variant.manifest is None else {MANIFEST_FILE: variant.manifest}
    if variant.nodes == 1:
        return start_server(variant.label, variant.command, folder, port=spec.port, files=files, cores=cores)
    places = node_places([LOOPBACK] * variant.nodes, spec.port)
    return start_cluster(variant.label, variant.command, folder, places, files=files, cores=cores)


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


def start_cluster(
    name: str,
    command: Sequence[str],
    folder: Path,
    places: Sequence[NodePlace],
    *,
    files: Mapping[str, str] | None = None,
    cores: frozenset[int] | None = None,
) -> ServerCluster:
    """Start all nodes at the same time; return when each of them answers, and knows all the others.

    A node may answer only when it has a controller, and a controller needs a majority. So no node waits for another.

    :param command: see :mod:`blumfeld.testing.cluster` for what is filled in; each node has a folder of its own
    :raises ServerError: a node did not start
    """
    nodes: list[Server] = []
    try:
        for place in places:
            home = folder / f"node{place.id}"
            words = filled(command, place, places, home)
            node = Server(f"{name}, node {place.id}", words, home, place.port, cores=cores)
            write_files(home, files or {})
            node.launch()
            nodes.append(node)
        for ready in (answers, lambda port: _knows_all(port, len(places))):
            for node in nodes:
                node._is_ready = ready
                node.await_ready(READY_TIMEOUT_S * len(places))
    except BaseException:
        stop(nodes)
        raise
    return ServerCluster(name, tuple(nodes), folder, max(node.ready_s for node in nodes))


def _knows_all(port: int, nodes: int) -> bool:
    """Whether the broker on this port names so many brokers in its Metadata."""
    with contextlib.suppress(DriverError), WireClient(LOOPBACK, port, ASK_TIMEOUT_S) as client:
        return client.broker_count() >= nodes
    return False


def _await_end(pids: Sequence[int]) -> None:
    """Wait for processes that outlive their leader; kill them if they take too long."""
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while not all(map(has_ended, pids)) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    for pid in itertools.filterfalse(has_ended, pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def free_port() -> int:
    """Return a loopback port that was free a moment ago; the port after it was free too (for a controller)."""
    return node_process.free_port(adjacent=2)


def answers(port: int) -> bool:
    """Whether an ApiVersions request to this port is answered now."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as client:
            client.sendall(API_VERSIONS_V0)
            return len(client.recv(4)) == 4
    except OSError:
        return False


def listens(port: int) -> bool:
    """Whether this port accepts a connection now."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
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
