"""A network namespace for each node and one for the load, so that packets between two of them can be dropped.

They are those of ``blumfeld cluster up --isolated``. The campaign moves into network and mount namespaces of its own
first. So nothing of the machine's network changes, and all of it is gone when the processes have ended.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Self

from blumfeld.cli.cluster import namespaces
from blumfeld.cli.cluster.state import ClusterError, ClusterState, NodeState
from campaigns.cluster.unshare import CLONE_NEWNET, CLONE_NEWNS, join, leave

NAMES = Path("/run/netns")
"""The folder in which ``ip`` keeps the namespaces by name."""
LOAD = 0
"""Stands for the campaign's own end of the network among the ids of the nodes."""


class Namespaces:
    """The namespaces while a ``with`` block lasts. The campaign itself is in that of :data:`LOAD` meanwhile."""

    def __init__(self, nodes: int) -> None:
        """Move this process into namespaces of its own. No thread may run yet: only the calling one moves.

        :raises ClusterError: this machine or this user can't have them
        """
        if os.geteuid() != 0 or shutil.which("ip") is None:
            raise ClusterError("cuts need network namespaces, which take root and the command ip (iproute2)")
        bridge = namespaces.bridge_name(Path(f"campaign-{os.getpid()}"))
        self._state = ClusterState(bridge=bridge, nodes=[_end(bridge, end) for end in range(nodes + 1)])
        try:
            leave(CLONE_NEWNS | CLONE_NEWNET)
        except OSError as error:
            raise ClusterError(f"cuts need a network namespace: {error}") from error
        NAMES.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(NAMES)], check=True, capture_output=True)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The address of each node."""
        return tuple(node.host for node in self._state.nodes[1:])

    @property
    def load_host(self) -> str:
        """The address of the campaign itself."""
        return self._state.node(LOAD).host

    @property
    def prefixes(self) -> list[tuple[str, ...]]:
        """For each node the command that runs another one in its namespace, with the same process id."""
        return [namespaces.prefix(node) for node in self._state.nodes[1:]]

    def __enter__(self) -> Self:
        """Make the namespaces, and move into that of the load.

        :raises ClusterError: a step failed
        """
        namespaces.make(self._state)
        # The bridge goes with its last process or descriptor.
        self._hub = os.open("/proc/self/ns/net", os.O_RDONLY)
        with (NAMES / str(self._state.node(LOAD).namespace)).open() as inside:
            join(inside.fileno(), CLONE_NEWNET)
        return self

    def __exit__(self, *_: object) -> None:
        """Let the bridge go; the namespaces end with the processes in them."""
        os.close(self._hub)

    def drop(self, sender: int, receiver: int) -> None:
        """Drop every packet from one end to another; :data:`LOAD` is the campaign itself. The other direction stays.

        :raises ClusterError: ``ip`` failed
        """
        namespaces.cut(self._state.node(sender), self._state.node(receiver))

    def pass_again(self, sender: int, receiver: int) -> None:
        """Let the packets of :meth:`drop` through again; raises the same."""
        namespaces.heal(self._state.node(sender), self._state.node(receiver))


def _end(bridge: str, end: int) -> NodeState:
    return NodeState(
        id=end,
        roles=(),
        host=namespaces.address_of(bridge, end + 1),
        port=0,
        manifest="",
        log="",
        namespace=f"{bridge}-{end}",
    )
