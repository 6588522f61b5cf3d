"""The faults of a run, drawn from its seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence

KINDS = {
    "kill-broker": "SIGKILL of a broker; it is started again after the down time",
    "kill-coordinator": "the same for the coordinator of a client's transactional id",
    "kill-leader": "the same for the leader of a partition of the output",
    "pause-coordinator": "SIGSTOP of that coordinator for longer than its session, and SIGCONT",
    "kill-client": "SIGKILL of a client; its successor begins at once with the same transactional id",
    "kill-both": "SIGKILL of a broker and a client at the same moment",
    "zombie": "SIGSTOP of a client, its successor begins and commits, SIGCONT: the first one must be fenced",
}
ON_ZOOKEEPER = {
    "kill-controller": "SIGKILL of the broker that is the controller; it is started again after the down time",
    "kill-zookeeper": "SIGKILL of ZooKeeper; it is started again after the down time",
    "pause-zookeeper": "SIGSTOP of ZooKeeper for longer than the nodes' sessions, and SIGCONT",
    "expire-coordinator": "another client closes the coordinator's session with ZooKeeper",
    "lose-controller": "the controller's next multi takes effect, its answer is lost, and its session expires",
}
"""Further kinds of a cluster on a ZooKeeper."""
OF_ONE_NODE = ("kill-broker", "kill-client", "zombie", "kill-both")
"""With one node every broker is the same one."""
OF_SEVERAL = ("kill-coordinator", "kill-client", "kill-leader", "zombie", "kill-both")
BROKER_DIES = ("kill-broker", "kill-coordinator", "kill-leader", "kill-both", "kill-controller")
PAUSE = "pause-coordinator"
"""Only when it is named: it takes a quarter of a minute."""
CLIENT_DIES = ("kill-client", "kill-both")


class UnknownFaultError(ValueError):
    """There is no fault of this name; the message has the names that there are."""


def plan_of(
    fate: random.Random, nodes: int, count: int, only: Sequence[str] = (), on_zookeeper: bool = False
) -> list[str]:
    """Return the faults of a run: every kind comes once before one comes again.

    :param only: the kinds to draw from, if not all that make sense with so many nodes
    :raises UnknownFaultError: a name of ``only`` is not that of a fault
    """
    further = ON_ZOOKEEPER if on_zookeeper else {}
    for name in only:
        if name not in KINDS and name not in further:
            raise UnknownFaultError(f"found {name}; allowed: {', '.join((*KINDS, *further))}")
    kinds = list(only) or [*(OF_ONE_NODE if nodes == 1 else OF_SEVERAL), *further]
    plan: list[str] = []
    while len(plan) < count:
        plan += fate.sample(kinds, len(kinds))
    return plan[:count]
