"""The classes of faults, and which of them a seed turns on. Pure.

Each class draws from a source of its own. So the other classes do the same if one is left out, which is what makes a
failing seed reducible.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from enum import StrEnum

ON_CHANCE = 0.5
"""Probability that a seed turns a class on."""
PAUSE_S = (8.0, 120.0)
"""Range of the mean time between two faults of a class."""


class FaultClass(StrEnum):
    """A kind of fault. Each can be turned on and off alone."""

    KILL = "kill"
    """``kill -9`` of a process; the page cache survives."""
    POWER = "power"
    """A power cut of one machine, also inside a disk operation."""
    POWER_TOGETHER = "power-together"
    """A power cut of several machines at once."""
    STOP = "stop"
    """An orderly stop."""
    PAUSE = "pause"
    """A process is stopped for a while (SIGSTOP)."""
    LOAD = "load"
    """Each turn of a machine takes time for a while."""
    CUT = "cut"
    """Nothing arrives from one machine at another for a while; the way back works."""
    PARTITION = "partition"
    """A group of machines and the others don't reach each other for a while."""
    STALL = "stall"
    """A link delivers nothing for some seconds, then everything."""
    BREAK = "break"
    """A connection is broken at both ends."""
    CLOCK_JUMP = "clock-jump"
    """A wall clock jumps forward or back."""
    CLOCK_RATE = "clock-rate"
    """A clock runs too fast or too slow."""
    DISK_FULL = "disk-full"
    """A disk has no room for a while."""
    DISK_SLOW = "disk-slow"
    """A device takes much longer for a while."""
    WRITE_ERROR = "write-error"
    """A write fails with EIO."""
    SYNC_ERROR = "sync-error"
    """A sync fails with EIO."""
    READ_ERROR = "read-error"
    """A read fails with EIO."""
    BIT_ROT = "bit-rot"
    """A bit of a file flips on the device."""
    ROLLING = "rolling"
    """Each process in turn is stopped in order, and the next one follows soon after it serves again."""
    KILL_TWICE = "kill-twice"
    """``kill -9`` of one process, and of another one while the cluster is still busy with the first."""
    AIMED = "aimed"
    """The controller, or the leader of a partition, is killed, stopped for a while or cut off from the other nodes. Its
    clients still reach it."""
    TIMELY = "timely"
    """The same, in the moment when a machine begins to lead, or when the controller has much to decide."""
    POWER_AT_SYNC = "power-at-sync"
    """Several machines lose their power at the moment when the controller or a leader begins to sync a file."""
    LOST_DISK = "lost-disk"
    """A machine loses its power and its disk. Its node comes back with the same id and an empty disk."""
    REFUSE = "refuse"
    """A firewall refuses connections to a machine for a while, from some machines or from all."""
    BACKLOG = "backlog"
    """A machine drops attempts to connect for a while: its backlog is full."""
    LISTENER = "listener"
    """A process closes its ports with their connections, and opens them again within some seconds."""
    PROXY = "proxy"
    """A proxy accepts connections for a machine for a while, also when no process is there."""
    JOINING = "joining"
    """While a leader asks the controller to take a follower into the ISR, the request, its answer or the follower's
    records are held up. The follower falls behind meanwhile, or is another process."""
    LATE = "late"
    """A process ends, and its successor starts at once. What the first one sent last arrives seconds later."""
    STORE = "store"
    """The object store fails for a while: it can't be reached, fails, throttles, answers late or lists late."""
    DECISION = "decision"
    """A coordinator's process ends when it decides on a transaction: before the decision is committed, or while markers
    are still on their way that a successor sends anew."""
    ZK_CUT = "zk-cut"
    """A node doesn't reach ZooKeeper for a while; in half of the cases the controller."""
    ZK_SERVER = "zk-server"
    """A server of ZooKeeper is killed and starts again later; now and then all are."""
    ZK_PARTITION = "zk-partition"
    """A server of ZooKeeper doesn't reach the others for a while. Its clients read old news first."""
    ZK_LEADER = "zk-leader"
    """ZooKeeper loses its leader, with the writes on their way to it."""
    ZK_EXPIRY = "zk-expiry"
    """A session is over at once; in half of the cases the controller's."""
    ZK_WRITE = "zk-write"
    """Around a write of the controller its session ends, before the write or behind it; or its answer is lost with the
    connection; or the process is killed behind it."""
    ZK_DEPOSE = "zk-depose"
    """Somebody deletes ``/controller``, as operators do, while the controller's messages are held up."""
    ZK_SLOW = "zk-slow"
    """A session's messages take longer, a server learns of writes late, or no write is decided for a while."""


OF_CLUSTERS = frozenset(
    {
        FaultClass.ROLLING,
        FaultClass.KILL_TWICE,
        FaultClass.AIMED,
        FaultClass.TIMELY,
        FaultClass.POWER_AT_SYNC,
        FaultClass.LOST_DISK,
        FaultClass.REFUSE,
        FaultClass.BACKLOG,
        FaultClass.LISTENER,
        FaultClass.PROXY,
        FaultClass.JOINING,
        FaultClass.LATE,
        FaultClass.DECISION,
    }
)
"""Classes that mean something only where nodes take over from each other."""
OF_ZOOKEEPER = frozenset(fault_class for fault_class in FaultClass if fault_class.value.startswith("zk-"))
"""Classes that mean something only with a ZooKeeper."""
PAUSES_S: dict[FaultClass, tuple[float, float]] = {
    FaultClass.AIMED: (4.0, 30.0),
    FaultClass.TIMELY: (4.0, 30.0),
    FaultClass.POWER_AT_SYNC: (4.0, 30.0),
    FaultClass.JOINING: (4.0, 30.0),
    FaultClass.DECISION: (1.0, 8.0),
    **dict.fromkeys(sorted(OF_ZOOKEEPER), (1.5, 15.0)),
    FaultClass.ZK_WRITE: (1.0, 6.0),
    FaultClass.ZK_DEPOSE: (1.0, 6.0),
}
"""As :data:`PAUSE_S`, for classes that wait for a moment. It passes soon, so not each of them strikes. ``DECISION``
waits for a commit whose markers go to another node: there is about one a second."""
LASTS_S = 8.0
"""Mean duration of a fault that lasts."""


def chance_of(seed: int, name: str) -> random.Random:
    """Return a source of chance for one part of a run."""
    return random.Random(f"{seed}/{name}")


def lasts_s(chance: random.Random) -> float:
    """Return the duration of a fault that lasts."""
    return 0.1 + chance.random() * 2 * LASTS_S


def drawn(seed: int, allowed: Collection[FaultClass]) -> dict[FaultClass, float]:
    """Return the classes that the seed turns on, with the mean time between two faults in seconds.

    :param allowed: the other classes stay off. If the seed turns none of these on, the first one is on
    """
    pauses_s: dict[FaultClass, float] = {}
    first: tuple[FaultClass, float] | None = None
    for fault_class in FaultClass:
        chance = chance_of(seed, f"swarm/{fault_class.value}")
        is_on = chance.random() < ON_CHANCE
        low_s, high_s = PAUSES_S.get(fault_class, PAUSE_S)
        pause_s = low_s * (high_s / low_s) ** chance.random()
        if fault_class in allowed:
            first = first or (fault_class, pause_s)
            if is_on:
                pauses_s[fault_class] = pause_s
    if not pauses_s and first is not None:
        pauses_s[first[0]] = first[1]
    return pauses_s
