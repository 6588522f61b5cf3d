"""The faults of a run, and the nodes that each of them hits. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from campaigns.zookeeper_server import ZOOKEEPER

ACTIONS = {
    "kill": "SIGKILL; the node is started again after the down time",
    "pause": "SIGSTOP, and SIGCONT after the down time",
    "stop": "SIGTERM; started again as soon as every node that was hit has ended",
    "cut": "every packet from and to the node is dropped for the down time",
    "deafen": "every packet to the node is dropped for the down time; its own still arrive",
    "mute": "every packet from the node is dropped for the down time; it still hears the others",
    "part": "the nodes that are hit can't reach one another for the down time; clients reach all of them",
    "fill": "no byte is free on the node's disk for the down time",
    "expire": "the node's session with ZooKeeper is closed by another client; with --zookeeper",
    "lose": "the answer of the controller's next multi, which begins a topic, is lost, and the node reaches no "
    "ZooKeeper for the down time; with --zookeeper",
}
NETWORK = frozenset({"cut", "deafen", "mute", "part"})
"""Actions that need a network namespace for each node."""
TARGETS = {
    "leader": "the leader of partition 0; if that is the controller, the leader of the next partition",
    "controller": "the active controller, whatever else it leads",
    "follower": "a broker that is not the controller and doesn't lead partition 0; the one that leads the fewest",
    "both": "the nodes of leader and controller at once",
}
SESSIONS = frozenset({"expire", "lose"})
"""Actions that need a door between each node and its ZooKeeper."""
ENSEMBLE = "zookeeper"
"""The target of a fault that hits all ZooKeeper servers, where the cluster has any."""
ENSEMBLE_LEADER, ENSEMBLE_FOLLOWER = "zookeeper-leader", "zookeeper-follower"
"""The targets of a fault that hits one of several."""
ENSEMBLE_TARGETS = (ENSEMBLE, ENSEMBLE_LEADER, ENSEMBLE_FOLLOWER)
ENSEMBLE_ACTIONS = ("kill", "pause", "stop")
ROLLING = "rolling"
"""Every node in turn is stopped and started; the next one follows when all replicas are in sync again, and all voters
have caught up with the quorum."""
DEFAULT_FAULTS = (
    *(f"{action}-{target}" for action in ("kill", "pause") for target in TARGETS),
    *(f"stop-{target}" for target in ("leader", "controller", "follower")),
    ROLLING,
)
SESSION_FAULTS = ("expire-controller", "expire-leader", "expire-follower", "lose-controller")
ZOOKEEPER_FAULTS = (
    *DEFAULT_FAULTS,
    *(f"{action}-{ENSEMBLE}" for action in ENSEMBLE_ACTIONS),
    *SESSION_FAULTS,
)
"""The faults of a cluster that keeps its metadata in ZooKeeper."""
ENSEMBLE_FAULTS = (
    *(f"{action}-{target}" for action in ("kill", "pause") for target in ENSEMBLE_TARGETS[1:]),
    f"stop-{ENSEMBLE_LEADER}",
)
"""Those of an ensemble of several servers."""
CUTS = tuple(f"cut-{target}" for target in TARGETS)


class BadFaultError(ValueError):
    """There is no fault of this name; the message has the names that there are."""


class NoTargetError(Exception):
    """The cluster has no node that the fault could hit now; the message says why."""


@attrs.frozen
class Fault:
    """One fault of the plan."""

    action: str
    """A key of :data:`ACTIONS`, or :data:`ROLLING`."""
    target: str
    """A key of :data:`TARGETS`, the id of a node, or ``each`` for a rolling restart."""

    @property
    def name(self) -> str:
        """The name that a person types."""
        return ROLLING if self.action == ROLLING else f"{self.action}-{self.target}"


@attrs.frozen
class Leadership:
    """The nodes that lead, at one moment."""

    controller: int
    leaders: tuple[int, ...]
    """Leader by partition; -1 where there is none."""
    nodes: tuple[int, ...]
    """All nodes of the cluster."""
    brokers: tuple[int, ...]
    """Those of them that can lead a partition."""
    servers: tuple[int, ...] = (ZOOKEEPER,)
    """The ZooKeeper servers, their leader first."""

    def led_by(self, node: int) -> int:
        """Return the number of partitions that a node leads."""
        return self.leaders.count(node)


def parse_fault(name: str) -> Fault:
    """Return the fault of this name.

    :raises BadFaultError: there is none
    """
    if name == ROLLING:
        return Fault(ROLLING, "each")
    action, _, target = name.partition("-")
    if target in ENSEMBLE_TARGETS and action in (*ENSEMBLE_ACTIONS, "cut"):
        return Fault(action, target)
    if action == "lose" and target != "controller":
        raise BadFaultError(f"found {name}; allowed: lose-controller, which alone writes in multis")
    if action not in ACTIONS or (target not in TARGETS and not target.isdecimal()):
        raise BadFaultError(
            f"found {name}; allowed: {ROLLING}, or {', '.join(ACTIONS)} with -{', -'.join(TARGETS)} or the id of a "
            "node, as in kill-leader and kill-3"
        )
    return Fault(action, target)


def plan_of(names: Sequence[str], rounds: int) -> list[Fault]:
    """Return the faults of a run: all names, in their order, ``rounds`` times.

    :raises BadFaultError: a name is not that of a fault
    """
    return [parse_fault(name) for name in names] * rounds


def targets_of(fault: Fault, now: Leadership) -> tuple[int, ...]:
    """Return the nodes that the fault hits.

    :raises NoTargetError: no node fits
    """
    if fault.target == "each":
        return now.nodes
    if fault.target in ENSEMBLE_TARGETS:
        return _servers(fault.target, now.servers)
    if fault.target.isdecimal():
        if int(fault.target) not in now.nodes:
            raise NoTargetError(
                f"the cluster has no node {fault.target} (found {', '.join(map(str, now.nodes))})"
            )
        return (int(fault.target),)
    if now.controller not in now.nodes:
        raise NoTargetError(f"the cluster has no controller (found {now.controller})")
    if fault.target == "controller":
        return (now.controller,)
    if fault.target == "follower":
        return (_follower(now),)
    return (_leader(now),) if fault.target == "leader" else (_leader(now), now.controller)


def _servers(target: str, servers: Sequence[int]) -> tuple[int, ...]:
    if target == ENSEMBLE:
        return tuple(servers)
    if len(servers) < len(ENSEMBLE_TARGETS):
        raise NoTargetError(f"{target} needs an ensemble of three servers (found {len(servers)})")
    return (servers[0] if target == ENSEMBLE_LEADER else servers[-1],)


def _leader(now: Leadership) -> int:
    leaders = [leader for leader in now.leaders if leader in now.nodes and leader != now.controller]
    if not leaders:
        raise NoTargetError("no partition has a leader that is not the controller")
    return leaders[0]


def _follower(now: Leadership) -> int:
    others = [node for node in now.brokers if node not in (now.controller, now.leaders[0])]
    if not others:
        raise NoTargetError("every broker is the controller or leads partition 0")
    return min(others, key=lambda node: (now.led_by(node), node))
