"""A network namespace for each node, so that a node can be cut off: packets vanish, and no connection is told.

The campaign moves into a namespace of its own, in which a bridge connects the nodes and the load. Nothing of the
machine's network changes, and all of it is gone when the processes have ended. It takes root and Linux.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import time
from types import TracebackType
from typing import Self

CLONE_NEWNET = 0x40000000
"""As in linux/sched.h."""
BRIDGE = "hub"
NETWORK = "10.83.0"
OWN_HOST = f"{NETWORK}.254"
DEAD_LINK_ADDRESS = "02:00:00:00:de:ad"
"""A link address that no device of the bridge has: packets to it leave their sender, and no device takes them."""
LOAD = 0
"""Stands for the campaign's own end of the network among the ids of the nodes."""
TOOLS = ("ip", "nsenter", "unshare")
HOLDER_S = 10.0
"""Time that ``unshare`` has to make a namespace."""
RUN_S = 30.0
"""Time that one call of ``ip`` may take."""


class NoNamespacesError(Exception):
    """This machine or this user can't have network namespaces, or can't change them; the message says why."""


class Namespaces:
    """One namespace for each node, with ids from 1 on, and wires between them that can be cut.

    :raises NoNamespacesError: this process may not make them
    """

    def __init__(self, nodes: int) -> None:
        """Move this process into a namespace of its own. No thread may run yet: only the calling one moves."""
        absent = [tool for tool in TOOLS if shutil.which(tool) is None]
        if absent:
            raise NoNamespacesError(f"cuts need the program {absent[0]}, which is not installed")
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNET):
            reason = os.strerror(ctypes.get_errno())
            raise NoNamespacesError(
                f"cuts need a network namespace, and unshare(2) said: {reason}. Run it as root"
            )
        self.hosts = tuple(f"{NETWORK}.{node}" for node in range(1, nodes + 1))
        self._holders: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        """Make the namespaces of the nodes and connect them.

        :raises NoNamespacesError: a step failed; what was made is ended
        """
        try:
            self._connect()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def prefixes(self) -> list[list[str]]:
        """For each node the command that runs another one in its namespace, with the same process id."""
        return [["nsenter", f"--net=/proc/{holder.pid}/ns/net", "--"] for holder in self._holders]

    def cut(self, node: int) -> None:
        """Drop every packet from and to a node. Its interface stays up, as behind a switch that fails.

        :raises NoNamespacesError: ``ip`` failed
        """
        _run("ip", "link", "set", _wire(node), "nomaster")

    def heal(self, node: int) -> None:
        """Connect a node again.

        :raises NoNamespacesError: ``ip`` failed
        """
        _run("ip", "link", "set", _wire(node), "master", BRIDGE)

    def drop(self, sender: int, receiver: int) -> None:
        """Drop every packet from one end to another; :data:`LOAD` is the campaign itself. The other direction stays.

        A neighbour entry with a dead link address does it, as in ``blumfeld cluster cut``: the packets vanish without
        a word to the sender, and no packet filter is needed.

        :raises NoNamespacesError: ``ip`` failed
        """
        address = ("lladdr", DEAD_LINK_ADDRESS, "nud", "permanent")
        self._neighbour("replace", sender, receiver, *address)

    def pass_again(self, sender: int, receiver: int) -> None:
        """Let the packets of :meth:`drop` through again.

        :raises NoNamespacesError: ``ip`` failed
        """
        self._neighbour("del", sender, receiver)

    def _neighbour(self, verb: str, sender: int, receiver: int, *address: str) -> None:
        inside = self.prefixes[sender - 1] if sender != LOAD else []
        device = "eth0" if sender != LOAD else BRIDGE
        host = self.hosts[receiver - 1] if receiver != LOAD else OWN_HOST
        _run(*inside, "ip", "neigh", verb, host, *address, "dev", device)

    def close(self) -> None:
        """End the namespaces of the nodes; harmless twice."""
        for holder in self._holders:
            holder.kill()
            holder.wait()
        self._holders.clear()

    def _connect(self) -> None:
        _run("ip", "link", "set", "lo", "up")
        # With a forward delay a port that joins the bridge would drop packets for 15 s more.
        _run("ip", "link", "add", BRIDGE, "type", "bridge", "forward_delay", "0")
        _run("ip", "address", "add", f"{OWN_HOST}/24", "dev", BRIDGE)
        _run("ip", "link", "set", BRIDGE, "up")
        for node, host in enumerate(self.hosts, start=1):
            holder = _holder()
            self._holders.append(holder)
            _await_namespace(holder.pid)
            inside = ("nsenter", f"--net=/proc/{holder.pid}/ns/net", "--", "ip")
            peer = ("peer", "name", "eth0", "netns", str(holder.pid))
            _run("ip", "link", "add", _wire(node), "type", "veth", *peer)
            _run("ip", "link", "set", _wire(node), "master", BRIDGE, "up")
            _run(*inside, "address", "add", f"{host}/24", "dev", "eth0")
            _run(*inside, "link", "set", "eth0", "up")
            _run(*inside, "link", "set", "lo", "up")


def _wire(node: int) -> str:
    return f"wire{node}"


def _holder() -> subprocess.Popen[bytes]:
    """Start a process that keeps a namespace alive."""
    try:
        return subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
    except OSError as error:
        raise NoNamespacesError(f"unshare could not be started: {error.strerror}") from error


def _await_namespace(pid: int) -> None:
    """Wait until the process has left our namespace.

    :raises NoNamespacesError: it ended, or took too long
    """
    deadline = time.monotonic() + HOLDER_S
    try:
        ours = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{pid}/ns/net") == ours:
            if time.monotonic() > deadline:
                raise NoNamespacesError(f"unshare --net made no namespace within {HOLDER_S:.0f} s")
            time.sleep(0.005)
    except OSError as error:  # a process that has ended has no namespace
        raise NoNamespacesError(f"unshare --net made no namespace: {error}") from error


def _run(*command: str) -> None:
    """Run a command to its end.

    :raises NoNamespacesError: it failed, took too long, or could not be started
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoNamespacesError(f"{' '.join(command)}: {error}") from error
    if done.returncode:
        raise NoNamespacesError(f"{' '.join(command)}: {done.stderr.strip()}")
