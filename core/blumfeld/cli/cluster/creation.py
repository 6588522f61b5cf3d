"""A new cluster: manifests derived, directories formatted, its file written."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from pathlib import Path

import msgspec

from blumfeld.cli.cluster import namespaces
from blumfeld.cli.cluster.state import ClusterError, ClusterState, NodeState, save_state
from blumfeld.cli.manifest import load_manifest, source_name
from blumfeld.config.addresses import address_text
from blumfeld.kernel.composing.plan import Plan, make_plan
from blumfeld.kernel.manifest.as_toml import manifest_toml
from blumfeld.kernel.manifest.sections import Manifest
from blumfeld.kernel.node import StartError
from blumfeld.kernel.runtime.short_lived_runtime import short_lived_runtime
from blumfeld.kernel.supervising.derivation import PORT_STEP, node_manifests
from blumfeld.kernel.supervising.preparation import prepare_nodes
from blumfeld.plugging.errors import Faults, ManifestError, Problem
from blumfeld.spi.transport import Listener

NODES = 3
"""Nodes of a cluster where neither the command nor the manifest says how many."""


def new_cluster(
    count: int | None,
    directory: Path,
    path: str | None,
    overrides: Sequence[str],
    listen: str | None,
    *,
    is_isolated: bool,
) -> ClusterState:
    """Make the files of a cluster whose nodes are derived as those of ``nodes = N``.

    :param count: ``None`` takes the manifest's ``nodes``, or 3 if it has no more than one
    :param path: of the manifest; its directories are replaced
    :raises ManifestError: no nodes can be derived from the manifest, one can't be run, or an override has no effect
    :raises ClusterError: this machine can't isolate nodes, or a node has no port of its own, or it is taken
    :raises StartError: a directory can't be written
    """
    source = source_name(path)
    _check_overrides(overrides, count)
    nodes = [] if count is None else [f"nodes={count}"]
    faults = Faults(source)
    manifest = load_manifest(path, [*overrides, *nodes], str(directory.resolve()), listen, faults)
    if count is None and manifest.nodes == 1:
        manifest = msgspec.structs.replace(manifest, nodes=NODES)
    derived = node_manifests(manifest, source, faults)
    if manifest.nodes == 1:  # nothing was derived: give it a directory of its own beside the cluster's file
        derived = (_below(manifest, directory),)
    bridge = None
    if is_isolated:
        namespaces.check_possible()
        bridge = namespaces.bridge_name(directory)
        derived = namespaces.isolated(derived, bridge)
    plans = [make_plan(node_manifest, source, faults=faults, written=manifest) for node_manifest in derived]
    if bridge is None:  # before anything is written: a cluster that is there can't be begun again elsewhere
        _check_ports(plans)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        asyncio.run(_prepare(manifest, plans))
        state = ClusterState(nodes=[_node(plan, directory, bridge) for plan in plans], bridge=bridge)
        for plan, node in zip(plans, state.nodes, strict=True):
            _write_private(Path(node.manifest), manifest_toml(plan.manifest))
        save_state(directory, state)
    except (OSError, ValueError) as error:
        raise StartError("directories", error) from error
    return state


def _write_private(path: Path, text: str) -> None:
    """Write a file that its owner alone may read: a manifest may have keys and passwords."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o600)  # one that is there keeps its mode else
        file.write(text)


def _check_overrides(overrides: Sequence[str], count: int | None) -> None:
    """Refuse a ``--set`` that would have no effect.

    :raises ManifestError: its key
    """
    replaced = {"node.data_dir": "--dir has all nodes", "node.data_dirs": "--dir has all nodes"}
    if count is not None:
        replaced["nodes"] = "N says how many"
    problems = [
        Problem(key, value.strip(), f"nothing here: {replaced[key]}")
        for key, value in (
            (override.partition("=")[0].strip(), override.partition("=")[2]) for override in overrides
        )
        if key in replaced
    ]
    if problems:
        raise ManifestError("--set", problems)


def _check_ports(plans: Sequence[Plan]) -> None:
    """Check that each node can listen, now.

    :raises ClusterError: another process has a port, or an address isn't this machine's
    """
    for plan in plans:
        for listener in plan.listeners:
            try:
                with socket.create_server(
                    (listener.host, listener.port), family=_family(listener.host), backlog=1
                ):
                    pass
            except OSError as error:
                where = f"{listener.name} of node {plan.manifest.node.id} can't listen on"
                address = address_text(listener.host, listener.port)
                number = error.errno or 0
                reason = os.strerror(number) if number > 0 else error  # the error itself repeats the address
                raise ClusterError(
                    f"{where} {address}: {reason}. --listen HOST:PORT says where the first node "
                    f"listens; each further node is {PORT_STEP} above"
                ) from None


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _below(manifest: Manifest, directory: Path) -> Manifest:
    node = msgspec.structs.replace(
        manifest.node, data_dir=f"{directory.resolve()}/node-{manifest.node.id}", data_dirs=None
    )
    return msgspec.structs.replace(manifest, node=node)


def _node(plan: Plan, directory: Path, bridge: str | None) -> NodeState:
    node = plan.manifest.node
    host, port = _address(plan, "broker" if "broker" in node.roles else "controller")
    base = directory.resolve() / f"node-{node.id}"
    return NodeState(
        id=node.id,
        roles=node.roles,
        host=host,
        port=port,
        manifest=f"{base}.toml",
        log=f"{base}.log",
        controller=_address(plan, "controller") if _is_voter(plan) else None,
        controller_protocol=_listener(plan, "controller").security_protocol if _is_voter(plan) else None,
        namespace=None if bridge is None else f"{bridge}-{node.id}",
    )


def _is_voter(plan: Plan) -> bool:
    """Return whether the node has a controller listener: a node alone votes without one."""
    return "controller" in plan.manifest.node.roles and any(
        listener.kind == "controller" for listener in plan.listeners
    )


def _listener(plan: Plan, kind: str) -> Listener:
    return next(candidate for candidate in plan.listeners if candidate.kind == kind)


def _address(plan: Plan, kind: str) -> tuple[str, int]:
    listener = _listener(plan, kind)
    port = listener.advertised_port or listener.port
    if not port:
        raise ClusterError(
            f"{listener.name} of node {plan.manifest.node.id} has port 0: `cluster` must know where it listens"
        )
    return listener.advertised_host or listener.host, port


async def _prepare(manifest: Manifest, plans: Sequence[Plan]) -> None:
    async with short_lived_runtime() as runtime:
        prepare_nodes(manifest, plans, runtime)
