"""The file of a cluster of `blumfeld cluster`: its nodes and their processes."""

from __future__ import annotations

from pathlib import Path

import msgspec

STATE_FILE = "cluster.json"


class ClusterError(Exception):
    """Something that a person must mend. The message is one line."""


class NodeState(msgspec.Struct, kw_only=True):
    """One node. Its process is known by pid and start time: a pid alone may be another process's by now."""

    id: int
    roles: tuple[str, ...]
    host: str
    """The host of the node's broker listener. A node that is a controller alone: that of its controller listener."""
    port: int
    manifest: str
    """Path of the node's own manifest, as TOML."""
    log: str
    """Path of the file with the node's stdout and stderr."""
    pid: int | None = None
    started_ticks: int = 0
    """Start time of the process in the kernel's clock ticks since boot (field 22 of /proc/PID/stat)."""
    controller: tuple[str, int] | None = None
    """The address at which the node's controller listener is reached; ``None`` if the node is no voter."""
    controller_protocol: str | None = None
    """The protocol of that listener; ``None`` if it isn't known."""
    namespace: str | None = None
    """Network namespace; ``None`` if the node shares the machine's network."""
    is_ours: bool = True
    """Whether `blumfeld cluster up` made it. The process of another one isn't known."""

    @property
    def is_controller(self) -> bool:
        """Whether the node is a voter."""
        return "controller" in self.roles


class ClusterState(msgspec.Struct, kw_only=True):
    """Content of the file."""

    nodes: list[NodeState]
    bridge: str | None = None
    """Network device that joins the namespaces; ``None`` if the nodes share the machine's network."""
    cuts: list[tuple[int, int]] = []
    """Pairs (from, to) of nodes whose packets are dropped in this direction."""

    def node(self, node_id: int) -> NodeState:
        """Return a node.

        :raises ClusterError: the cluster has none with this id
        """
        for node in self.nodes:
            if node.id == node_id:
                return node
        ids = ", ".join(str(node.id) for node in self.nodes)
        raise ClusterError(f"node {node_id}: this cluster has the nodes {ids}")


def load_state(directory: Path) -> ClusterState:
    """Read the file of a cluster.

    :raises ClusterError: there is none, or it can't be understood
    """
    path = directory / STATE_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=ClusterState)
    except FileNotFoundError:
        begin = f"blumfeld cluster up N --dir {directory}"
        raise ClusterError(f"{directory} has no cluster ({STATE_FILE}): begin one with `{begin}`") from None
    except (OSError, msgspec.DecodeError) as error:
        raise ClusterError(f"{path}: {error}") from None


def save_state(directory: Path, state: ClusterState) -> None:
    """Write the file, whole or not at all."""
    path = directory / STATE_FILE
    new = path.with_suffix(".tmp")
    new.write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=1) + b"\n")
    new.replace(path)
