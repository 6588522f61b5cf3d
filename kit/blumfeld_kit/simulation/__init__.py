"""A whole broker with its clients in one thread on virtual time, over a network and a disk that fail.

``Simulation(seed, hours).run()`` is an hour in seconds; ``python -m blumfeld_kit.simulation`` runs many. What is
simulated is the node as the kernel composes it; only the runtime (clock, chance, files, offloaded work) and the
transport are other ones. The same seed gives the same trace.
"""

from __future__ import annotations

from blumfeld_kit.simulation.clients.oracle import Oracle, ViolationError
from blumfeld_kit.simulation.run import Pace, Report, Simulation, SimulationFailure

__all__ = ["Oracle", "Pace", "Report", "Simulation", "SimulationFailure", "ViolationError"]
