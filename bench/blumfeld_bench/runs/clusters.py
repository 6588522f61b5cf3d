"""A variant's servers: one, or the nodes of a cluster on loopback, which are measured together."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from blumfeld.testing.cluster import LOOPBACK, NodePlace, filled, node_places
from blumfeld_bench.drivers.contract import DriverError
from blumfeld_bench.drivers.wire_client import WireClient
from blumfeld_bench.plan.variants import MANIFEST_FILE, VariantSpec
from blumfeld_bench.runs.servers import (
    READY_TIMEOUT_S,
    STOP_TIMEOUT_S,
    Server,
    answers,
    launch_server,
    start_server,
)
from blumfeld_bench.usage import Totals, reset_peak

ASK_TIMEOUT_S = 5.0


@attrs.define
class ServerCluster:
    """The nodes of a cluster that is up. Clients begin at the first one."""

    name: str
    nodes: tuple[Server, ...]
    folder: Path
    ready_s: float = 0.0
    """Time from the start of the first process until every node knew all of them."""

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The first node's process."""
        return self.nodes[0].process

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
        pids = [node.terminate() for node in self.nodes]
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for node, its in zip(self.nodes, pids, strict=True):
            node.await_end(its, max(0.0, deadline - time.monotonic()))


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
    began = time.perf_counter()
    nodes: list[Server] = []
    try:
        for place in places:
            home = folder / f"node{place.id}"
            words = filled(command, place, places, home)
            nodes.append(
                launch_server(f"{name}, node {place.id}", words, home, place.port, files=files, cores=cores)
            )
        deadline = began + READY_TIMEOUT_S * len(places)
        for ready in (answers, lambda port: _knows_all(port, len(places))):
            for node in nodes:
                node.await_ready(ready, deadline)
    except BaseException:
        ServerCluster(name, tuple(nodes), folder).stop()
        raise
    return ServerCluster(name, tuple(nodes), folder, time.perf_counter() - began)


def _knows_all(port: int, nodes: int) -> bool:
    """Whether the broker on this port names so many brokers in its Metadata."""
    with contextlib.suppress(DriverError), WireClient(LOOPBACK, port, ASK_TIMEOUT_S) as client:
        return client.broker_count() >= nodes
    return False
