"""Many machines with a workload under faults that each seed draws: a swarm.

``Swarm(shape, workload).run()`` runs one seed; ``blumfeld simulate`` runs many, and reduces those that fail.
"""

from __future__ import annotations

from blumfeld_kit.simulation.swarm.faults import FaultClass
from blumfeld_kit.simulation.swarm.run import Swarm, SwarmFailure, SwarmReport
from blumfeld_kit.simulation.swarm.shape import Shape
from blumfeld_kit.simulation.swarm.world import Workload, World

__all__ = [
    "FaultClass",
    "Shape",
    "Swarm",
    "SwarmFailure",
    "SwarmReport",
    "Workload",
    "World",
]
