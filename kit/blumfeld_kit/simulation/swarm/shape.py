"""The shape of a run: everything that, with the seed, decides it."""

from __future__ import annotations

import msgspec

from blumfeld_kit.simulation.swarm.faults import FaultClass

KRAFT, ZOOKEEPER = "kraft", "zookeeper"
"""The consensus of a simulated cluster."""
SETTLE_S = 300.0
"""Virtual time within which everything must be well again after the last fault was healed."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a run. Each is an option of ``blumfeld simulate``."""

    seed: int = 0
    nodes: int = 3
    clients: int = 4
    seconds: float = 300.0
    """Virtual time under faults."""
    storage: str = "storage_local"
    consensus: str = KRAFT
    """:data:`KRAFT` or :data:`ZOOKEEPER`."""
    workload: str = "brokers"
    """A name of ours, or ``module:attribute``."""
    faults: tuple[FaultClass, ...] | None = None
    """Classes that the seed may turn on; ``None``: all that the workload survives."""
    settle_s: float = SETTLE_S

    def command(self) -> str:
        """Return the command that repeats the run."""
        faults = (
            ""
            if self.faults is None
            else f" --faults {','.join(fault_class.value for fault_class in self.faults) or 'none'}"
        )
        consensus = "" if self.consensus == KRAFT else f" --consensus {self.consensus}"
        return (
            f"blumfeld simulate --seeds {self.seed} --nodes {self.nodes} --clients {self.clients} "
            f"--seconds {self.seconds:g} --settle {self.settle_s:g} --storage {self.storage} "
            f"--workload {self.workload}{consensus}{faults}"
        )
