"""A ZooKeeper ensemble on virtual time, with its ordering guarantees and its faults. A seed is always the same run."""

from __future__ import annotations

from blumfeld.spi.runtime import Runtime
from blumfeld_kit.fakes.zookeeper_servers import Ensemble
from blumfeld_kit.fakes.zookeeper_session import SimulatedSession


class SimulatedZooKeeper(Ensemble):
    """The ensemble. It outlives the nodes: each makes its sessions by :meth:`session` on its own runtime.

    Its methods are what a scenario does to the servers; those of a session are what it does to one client.

    :param runtime: the ensemble's own: its chance decides, and no crash of a node touches it
    :param servers: their number; server 0 leads at first
    """

    def session(
        self,
        runtime: Runtime,
        *,
        chroot: str = "",
        create_chroot: bool = True,
        timeout_ms: float = 18_000,
        auth: str = "",
    ) -> SimulatedSession:
        """Return a session of a node, which ``connect`` begins. It is a ``ZooKeeper`` of the port.

        :param auth: its name for :meth:`protect`
        """
        return SimulatedSession(
            self, runtime, chroot=chroot, create_chroot=create_chroot, timeout_ms=timeout_ms, auth=auth
        )
