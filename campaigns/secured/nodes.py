"""Nodes with listeners of several protocols, each made of a manifest that may change between two starts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from blumfeld.testing.cluster import CLUSTER_ID, LOOPBACK
from blumfeld.testing.process import NodeError, NodeProcess, free_port
from blumfeld_kit.cluster import REPLICAS, REPLICATED
from campaigns.clients.client import NO_REBALANCE_DELAY

FORMAT_S = 60.0


@attrs.frozen
class Face:
    """A listener that each node has."""

    name: str
    protocol: str = "PLAINTEXT"
    kind: str = "broker"
    inter_broker: bool = False


class SecuredNode(NodeProcess):
    """A node made of ``node.toml`` in its folder. It is ready when it says so: its listeners may want TLS."""

    def __init__(self, node_id: int, folder: Path, ports: Mapping[str, int], laid: Sequence[str]) -> None:
        """:param ports: by listener, also of those that the node doesn't have at present
        :param laid: ``section.key=value``, laid over the manifest"""
        folder.mkdir(parents=True)
        self.id, self.folder, self.ports = node_id, folder, ports
        self.manifest = folder / "node.toml"
        command = [sys.executable, "-m", "blumfeld.cli.main", "run", str(self.manifest)]
        command += ["--data-dir", str(folder / "data")]
        command += [word for setting in laid for word in ("--set", setting)]
        address = (LOOPBACK, next(iter(ports.values())))
        super().__init__(f"node {node_id}", command, folder / "node.log", address)

    def format(self, *options: str) -> None:
        """Format its directory by its manifest.

        :raises NodeError: it was refused
        """
        command = [word if word != "run" else "format" for word in self.command]
        done = subprocess.run(
            [*command, *options], capture_output=True, text=True, timeout=FORMAT_S, check=False
        )
        if done.returncode:
            raise NodeError(f"{self.name} isn't formatted: {done.stderr}")

    def answers(self) -> bool:
        """Whether it has said since the last launch that it is ready."""
        return bool(self.said_ready())

    def printed_count(self, text: str) -> int:
        """Return how often it has said something in all its launches."""
        return self.log_path.read_text(errors="replace").count(text)

    def at(self, listener: str) -> str:
        """Return host and port of a listener."""
        return f"{LOOPBACK}:{self.ports[listener]}"


def secured_nodes(
    count: int, folder: Path, listeners: Sequence[str], laid: Sequence[str] = ()
) -> tuple[SecuredNode, ...]:
    """Return nodes without manifests, each with a port for each of these listeners, not started."""
    names = list(dict.fromkeys(listeners))
    first = free_port(count * len(names))
    laid = [*(REPLICATED if count >= REPLICAS else ()), NO_REBALANCE_DELAY, *laid]
    return tuple(
        SecuredNode(
            nth + 1,
            folder / f"node{nth + 1}",
            {name: first + nth * len(names) + at for at, name in enumerate(names)},
            [setting.replace("{id}", str(nth + 1)) for setting in laid],
        )
        for nth in range(count)
    )


def bootstrap(nodes: Sequence[SecuredNode], listener: str) -> str:
    """Return ``bootstrap.servers`` of a listener."""
    return ",".join(node.at(listener) for node in nodes)


def write_manifest(
    node: SecuredNode,
    nodes: Sequence[SecuredNode],
    faces: Sequence[Face],
    config: Mapping[str, Any],
    sections: Mapping[str, Any],
    *,
    dynamic: bool = False,
) -> None:
    """Write what a node is made of at its next start. Voters are reached by the first listener of kind controller.

    :param sections: more sections of the manifest
    :param dynamic: whether the log has the voters (KIP-853), and the manifest names where to ask
    """
    controllers = next(face.name for face in faces if face.kind == "controller")
    listeners = [
        {
            "name": face.name,
            "kind": face.kind,
            "bind": node.at(face.name),
            **({"inter_broker": True} if face.inter_broker else {}),
        }
        for face in faces
    ]
    network = {"listeners": listeners, **sections.get("network", {})}
    servers = bootstrap(nodes, controllers)
    voters = ",".join(f"{each.id}@{each.at(controllers)}" for each in nodes)
    quorum = {"bootstrap.servers": servers} if dynamic else {"voters": voters}
    keys = {
        **{f"controller.quorum.{name}": value for name, value in quorum.items()},
        "listener.security.protocol.map": ",".join(f"{face.name}:{face.protocol}" for face in faces),
        **config,
    }
    whole = {
        **sections,
        "node": {"id": node.id, "cluster_id": CLUSTER_ID, "roles": ["broker", "controller"]},
        "network": network,
        "config": keys,
    }
    node.manifest.write_text("".join(f"{name} = {_toml(section)}\n" for name, section in whole.items()))


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)
