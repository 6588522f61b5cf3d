"""A network namespace for each node, so that the packets between two nodes can be dropped.

It runs `ip` of iproute2 and needs root. A cut is a permanent neighbour entry with a link address that no device has, so
the packets leave the node and no device takes them. A blackhole route would not do: it makes the sender's `connect`
fail at once, where a cut cable is silent. No packet filter is needed, which many machines lack.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import msgspec

from blumfeld.cli.cluster.state import ClusterError, ClusterState, NodeState
from blumfeld.config.quorum import BOOTSTRAP_SERVERS, VOTERS
from blumfeld.kernel.manifest.sections import Manifest, MetricsSection, listener_sections

COMMAND_S_MAX = 10
DEVICE = "eth0"
"""A node's only network device, inside of its namespace."""
DEAD_LINK_ADDRESS = "02:00:00:00:de:ad"
"""A link address that no device of the bridge has. It is a local one, so no device that is sold has it either."""
NOT_ISOLATED = (
    "cut: these nodes share one network, where no packet shows which node sent it. Begin a cluster with "
    "`blumfeld cluster up N --isolated`, which gives each node a network of its own and needs root"
)
NEEDS_ROOT = "--isolated makes network namespaces, which needs root and the command `ip` (iproute2)"


def check_possible() -> None:
    """Check that this machine can isolate nodes.

    :raises ClusterError: it can't
    """
    if os.geteuid() != 0:
        raise ClusterError(f"{NEEDS_ROOT}: this user is not root")
    if shutil.which("ip") is None:
        raise ClusterError(f"{NEEDS_ROOT}: there is no `ip` here")


def bridge_name(directory: Path) -> str:
    """Return the name of the cluster's bridge: another one for each directory."""
    return "bf" + hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:6]


def address_of(bridge: str, host: int) -> str:
    """Return an address of the cluster's network, which is a /24 below 10.200.0.0/13."""
    number = int(bridge[2:], 16)
    return f"10.{200 + number % 8}.{number // 8 % 256}.{host}"


def isolated(manifests: tuple[Manifest, ...], bridge: str) -> tuple[Manifest, ...]:
    """Return the manifests with every listener at the address of its node's namespace, on the ports that it had.

    :raises ClusterError: the nodes are brokers of a quorum elsewhere, which a namespace doesn't reach
    """
    if "controller" not in manifests[0].node.roles:
        raise ClusterError("--isolated: the manifest's quorum is outside of the namespaces of these brokers")
    hosts = {manifest.node.id: address_of(bridge, nth) for nth, manifest in enumerate(manifests, 1)}
    controllers = {
        manifest.node.id: f"{hosts[manifest.node.id]}:{_port(section.bind)}"
        for manifest in manifests
        for section in listener_sections(manifest)
        if section.kind == "controller"
    }
    quorum = {
        VOTERS: ",".join(f"{node_id}@{address}" for node_id, address in controllers.items()),
        BOOTSTRAP_SERVERS: ",".join(controllers.values()),
    }
    return tuple(
        _isolated(manifest, hosts[manifest.node.id], quorum if len(manifests) > 1 else {})
        for manifest in manifests
    )


def _isolated(manifest: Manifest, host: str, quorum: dict[str, str]) -> Manifest:
    sections = tuple(
        msgspec.structs.replace(section, bind=f"{host}:{_port(section.bind)}", advertised=None)
        for section in listener_sections(manifest)
    )
    metrics = manifest.metrics
    if metrics.bind is not None:
        metrics = MetricsSection(bind=f"{host}:{_port(metrics.bind)}")
    network = msgspec.structs.replace(manifest.network, listeners=sections)
    return msgspec.structs.replace(
        manifest, network=network, metrics=metrics, config={**manifest.config, **quorum}
    )


def make(state: ClusterState) -> None:
    """Make the bridge and a namespace for each node, joined by a pair of devices. What is there and whole stays.

    A namespace that is made anew has none of the node's cuts any more, so the state forgets them.

    :raises ClusterError: the machine refuses; what this call made is removed again
    """
    bridge = state.bridge
    assert bridge is not None
    made: list[NodeState] = []
    is_new = not _is_there(bridge)
    try:
        if is_new:
            _ip("link", "add", bridge, "type", "bridge")
        _ip("addr", "replace", f"{address_of(bridge, 254)}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for node in state.nodes:
            if not _is_whole(node):
                _remove(node, bridge)
                made.append(node)
                _make(node, bridge)
    except BaseException:
        for node in made:
            _remove(node, bridge)
        if is_new:
            _try("link", "del", bridge)
        raise
    anew = {node.id for node in made}
    state.cuts = [pair for pair in state.cuts if pair[0] not in anew]


def _make(node: NodeState, bridge: str) -> None:
    name, device = _namespace(node), _device(node, bridge)
    _ip("netns", "add", name)
    _ip("-n", name, "link", "set", "lo", "up")
    _ip("link", "add", device, "type", "veth", "peer", "name", DEVICE, "netns", name)
    _ip("link", "set", device, "master", bridge, "up")
    _ip("-n", name, "addr", "add", f"{node.host}/24", "dev", DEVICE)
    _ip("-n", name, "link", "set", DEVICE, "up")  # last: by it `_is_whole` knows the rest


def _is_whole(node: NodeState) -> bool:
    """Return whether the node's namespace was made to the end."""
    name = _namespace(node)
    if not has_namespace(node):
        return False
    try:
        return f" {node.host}/" in _ip("-n", name, "-o", "-4", "addr", "show", "dev", DEVICE, "up")
    except ClusterError:
        return False


def has_namespace(node: NodeState) -> bool:
    """Return whether the node's namespace is there. A reboot of the machine takes it away."""
    return node.namespace is not None and Path(f"/run/netns/{node.namespace}").exists()


def remove(state: ClusterState) -> None:
    """Remove namespaces and bridge. What isn't there any more is skipped."""
    if state.bridge is not None:
        for node in state.nodes:
            _remove(node, state.bridge)
        _try("link", "del", state.bridge)
    state.cuts = []


def _remove(node: NodeState, bridge: str) -> None:
    _try("netns", "del", _namespace(node))
    _try(
        "link", "del", _device(node, bridge)
    )  # it goes with the namespace, unless its other end never got there


def _device(node: NodeState, bridge: str) -> str:
    return f"{bridge}.{node.id}"


def _is_there(device: str) -> bool:
    return Path(f"/sys/class/net/{device}").exists()


def prefix(node: NodeState) -> tuple[str, ...]:
    """Return the command that runs another one in the node's namespace. It stays the same process."""
    return () if node.namespace is None else ("ip", "netns", "exec", node.namespace)


def cut(sender: NodeState, receiver: NodeState) -> None:
    """Drop every packet from one node to another, without a word to either.

    :raises ClusterError: the nodes share the machine's network, or the machine refuses
    """
    address = ("lladdr", DEAD_LINK_ADDRESS, "nud", "permanent")
    _ip("-n", _namespace(sender), "neigh", "replace", receiver.host, *address, "dev", DEVICE)


def heal(sender: NodeState, receiver: NodeState) -> None:
    """Let packets through again. A cut that is gone already, with the namespace or alone, is healed.

    :raises ClusterError: as :func:`cut`
    """
    name = _namespace(sender)
    if not has_namespace(sender):
        return
    if DEAD_LINK_ADDRESS in _ip("-n", name, "neigh", "show", receiver.host, "dev", DEVICE):
        _ip("-n", name, "neigh", "del", receiver.host, "dev", DEVICE)


def _namespace(node: NodeState) -> str:
    if node.namespace is None:
        raise ClusterError(NOT_ISOLATED)
    return node.namespace


def _port(address: str) -> str:
    return address.rpartition(":")[2]


def _try(*arguments: str) -> None:
    with suppress(ClusterError):
        _ip(*arguments)


def _ip(*arguments: str) -> str:
    """Run the command. Return what it printed on stdout."""
    command = ["ip", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S_MAX, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClusterError(f"{' '.join(command)}: {error}") from None
    if done.returncode:
        raise ClusterError(f"{' '.join(command)}: {done.stderr.strip() or f'status {done.returncode}'}")
    return done.stdout
