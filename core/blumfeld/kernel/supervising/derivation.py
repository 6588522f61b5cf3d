"""From one manifest with ``nodes = N`` to the manifests of N nodes. Pure.

ADR 0031 says why the numbers are as they are. ``blumfeld run``, ``plan`` and ``format`` derive the same nodes, and so
does each process for itself, so nothing but the manifest and the node's id is passed on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from blumfeld.config.addresses import PORT_MAX
from blumfeld.config.quorum import BOOTSTRAP_SERVERS, NODE_ID_MAX, VOTERS
from blumfeld.kernel.manifest.sections import (
    ListenerSection,
    Manifest,
    MetricsSection,
    NodeSection,
    listener_sections,
)
from blumfeld.plugging.errors import Faults, Problem, shown
from blumfeld.plugging.sections import node_directory

PORT_STEP = 10
"""Each node's ports lie this far above those of the node before it."""
CONTROLLERS_MAX = 3
NODES_MAX = 64
CONTROLLER_LISTENER = "CONTROLLER"
REPLICAS_OF_TWO = {
    "offsets.topic.replication.factor": 2,
    "transaction.state.log.replication.factor": 2,
    "transaction.state.log.min.isr": 1,
}
"""Defaults of two nodes. Kafka's are 3, 3 and 2, and topics with three replicas would never be created there."""


_READ = ("nodes", "node", "network", "metrics", f'config."{VOTERS}"', f'config."{BOOTSTRAP_SERVERS}"')
"""Places of the manifest that the nodes are derived from."""


def node_manifests(manifest: Manifest, source: str, faults: Faults | None = None) -> tuple[Manifest, ...]:
    """Returns the manifest of each node, by id; a manifest of one node as it is.

    :param faults: what was wrong already. It gets each reason why no nodes can be derived. The manifest of a single
        node is returned then, so that its plan can tell what else is wrong, and raises the error
    :raises ManifestError: without ``faults`` it lists each reason why no nodes can be derived
    """
    if manifest.nodes == 1:
        return (manifest,)
    collected = Faults(source) if faults is None else faults
    alone = (msgspec.structs.replace(manifest, nodes=1),)
    if not collected.sound(*_READ):
        return alone
    collected.add(_problems(manifest))
    derived = _all_derived(manifest) if collected.sound(*_READ) else alone
    collected.add(_port_problems(derived))
    if faults is None:
        collected.tell()
    return derived


def _all_derived(manifest: Manifest) -> tuple[Manifest, ...]:
    count = _controllers(manifest)
    voters = [_with_controller_listener(manifest, nth) for nth in range(count)]
    addresses = [_controller_address(sections) for sections in voters]
    return tuple(_derived(manifest, nth, addresses) for nth in range(manifest.nodes))


def node_manifest(manifest: Manifest, node_id: int, source: str, faults: Faults | None = None) -> Manifest:
    """Returns the manifest of one of the nodes.

    :param faults: as for :func:`node_manifests`
    :raises ManifestError: without ``faults``: the manifest has no node with this id, or no nodes can be derived
    """
    derived = node_manifests(manifest, source, faults)
    for node in derived:
        if node.node.id == node_id:
            return node
    ids = ", ".join(str(node.node.id) for node in derived)
    collected = Faults(source) if faults is None else faults
    if collected.sound(*_READ):
        collected.add([Problem("--node", str(node_id), f"a node of {source}: {ids}")])
    if faults is None:
        collected.tell()
    return derived[0]


def _problems(manifest: Manifest) -> Iterator[Problem]:
    node, count = manifest.node, manifest.nodes
    if count > NODES_MAX:
        yield Problem("nodes", str(count), f"{NODES_MAX} at most: each is a process that takes a core")
    if "broker" not in node.roles:
        mistake = f"{count}, with the role controller alone"
        yield Problem("nodes", mistake, "1: several voters share a machine only beside brokers")
    if node.id + count - 1 > NODE_ID_MAX:
        yield Problem("node.id", str(node.id), f"{NODE_ID_MAX - count + 1} at most, with nodes = {count}")
    if "controller" in node.roles:
        for key in (VOTERS, BOOTSTRAP_SERVERS):
            if key in manifest.config:
                allowed = 'nothing here: the nodes make a quorum of their own; or node.roles = ["broker"]'
                yield Problem(f'config."{key}"', shown(manifest.config[key]), allowed)
        for nth, section in enumerate(listener_sections(manifest)):
            if section.kind == "controller" and section.bind.endswith(":0"):
                allowed = "a port: the other nodes are told it before this one starts"
                yield Problem(f"network.listeners[{nth}].bind", shown(section.bind), allowed)


def _port_problems(derived: Sequence[Manifest]) -> Iterator[Problem]:
    """Yields ports that two nodes would bind. Hosts are not compared, as for the listeners of one node."""
    taken: dict[int, tuple[int, str]] = {}
    for manifest in derived:
        binds = [(section.name, section.bind) for section in listener_sections(manifest)]
        if manifest.metrics.bind is not None:
            binds.append(("metrics", manifest.metrics.bind))
        for name, bind in binds:
            port, node_id = _port(bind), manifest.node.id
            other_id, other = taken.get(port, (node_id, ""))
            if port > PORT_MAX:
                mistake = f"port {port} for {name} of node {node_id}"
                yield Problem("nodes", mistake, f"ports up to {PORT_MAX}: lower ones here")
            elif other_id != node_id:  # two of one node are told by its own check
                mistake = f"port {port} for {name} of node {node_id}, and for {other} of node {other_id}"
                yield Problem("nodes", mistake, f"ports of one node that are less than {PORT_STEP} apart")
            if port:
                taken[port] = node_id, name


def _controllers(manifest: Manifest) -> int:
    """Returns the number of voters: 0 for brokers alone, else 1 or 3. Two voters would stand still with either gone."""
    if "controller" not in manifest.node.roles:
        return 0
    return CONTROLLERS_MAX if manifest.nodes >= CONTROLLERS_MAX else 1


def _derived(manifest: Manifest, nth: int, addresses: Sequence[tuple[str, str]]) -> Manifest:
    is_controller = nth < len(addresses)
    sections = _with_controller_listener(manifest, nth)
    if addresses and not is_controller:
        sections = tuple(section for section in sections if section.kind != "controller")
    metrics = manifest.metrics
    if metrics.bind is not None:
        metrics = MetricsSection(bind=_moved(metrics.bind, nth))
    return msgspec.structs.replace(
        manifest,
        nodes=1,
        node=_node(manifest.node, nth, is_controller=is_controller or not addresses),
        network=msgspec.structs.replace(manifest.network, listeners=sections),
        metrics=metrics,
        config=_config(manifest, nth, addresses),
    )


def _node(node: NodeSection, nth: int, *, is_controller: bool) -> NodeSection:
    node_id = node.id + nth
    below = [node_directory(path, node_id) for path in node.directories]
    one_directory = node.data_dirs is None
    return msgspec.structs.replace(
        node,
        id=node_id,
        roles=node.roles if is_controller else ("broker",),
        data_dir=below[0] if one_directory else None,
        data_dirs=None if one_directory else tuple(below),
    )


def _config(manifest: Manifest, nth: int, addresses: Sequence[tuple[str, str]]) -> dict[str, Any]:
    if not addresses:
        return manifest.config
    config: dict[str, Any] = dict(REPLICAS_OF_TWO) if manifest.nodes == 2 else {}
    voters = [f"{manifest.node.id + index}@{address}" for index, (_, address) in enumerate(addresses)]
    # The servers say to a single voter, too, that there are other nodes: internal topics wait for them.
    quorum = {VOTERS: ",".join(voters), BOOTSTRAP_SERVERS: ",".join(address for _, address in addresses)}
    if nth >= len(addresses):
        quorum["controller.listener.names"] = addresses[0][0]
    return {**config, **manifest.config, **quorum}


def _with_controller_listener(manifest: Manifest, nth: int) -> tuple[ListenerSection, ...]:
    """Returns the listeners of the ``nth`` node as if it were a controller, with one on loopback if there is none."""
    given = listener_sections(manifest)
    if "controller" in manifest.node.roles and not any(section.kind == "controller" for section in given):
        taken = {_port(section.bind) % PORT_STEP for section in given}
        if manifest.metrics.bind is not None:
            taken.add(_port(manifest.metrics.bind) % PORT_STEP)
        port = _port(given[0].bind) + 1
        while port % PORT_STEP in taken and len(taken) < PORT_STEP:
            port += 1
        bind = f"127.0.0.1:{port}"
        given = (*given, ListenerSection(name=CONTROLLER_LISTENER, kind="controller", bind=bind))
    return tuple(
        msgspec.structs.replace(
            section,
            bind=_moved(section.bind, nth),
            advertised=None if section.advertised is None else _moved(section.advertised, nth),
        )
        for section in given
    )


def _controller_address(sections: Sequence[ListenerSection]) -> tuple[str, str]:
    """Returns (name, ``HOST:PORT``) of the listener by which the other nodes reach a voter."""
    section = next(section for section in sections if section.kind == "controller")
    return section.name, section.advertised or section.bind


def _moved(address: str, nth: int) -> str:
    """Returns the address for the ``nth`` node. Port 0 stays: it is any free one."""
    host, colon, _ = address.rpartition(":")
    port = _port(address)
    return f"{host}{colon}{port + PORT_STEP * nth}" if port else address


def _port(address: str) -> int:
    """Returns the port of an address, also one that is too high; 0 for text that the check of a node names."""
    port = address.rpartition(":")[2]
    return int(port) if port.isascii() and port.isdigit() else 0
