"""Finds a workload by its name: one of ours, or ``module:attribute``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import cast

from blumfeld_kit.simulation.cluster.workload import Cluster
from blumfeld_kit.simulation.secured.workload import Secured
from blumfeld_kit.simulation.swarm.brokers import Brokers, Hours
from blumfeld_kit.simulation.swarm.rot import Rot
from blumfeld_kit.simulation.swarm.run import Swarm, SwarmFailure, SwarmReport
from blumfeld_kit.simulation.swarm.shape import Shape
from blumfeld_kit.simulation.swarm.world import Workload
from blumfeld_kit.simulation.tiered.workload import Tiered
from blumfeld_kit.simulation.transactions.workload import Transactions

MakeWorkload = Callable[[], Workload]

WORKLOADS: dict[str, MakeWorkload] = {
    "brokers": Brokers,
    "cluster": Cluster,
    "hours": Hours,
    "rot": Rot,
    "secured": Secured,
    "tiered": Tiered,
    "transactions": Transactions,
}


class UnknownWorkloadError(ValueError):
    """No workload has this name."""


def workload_of(name: str) -> MakeWorkload:
    """Return the function that makes the workload. A module is also looked for in the working directory.

    :raises UnknownWorkloadError: the name is neither one of ours nor that of something importable
    """
    if name in WORKLOADS:
        return WORKLOADS[name]
    module, colon, attribute = name.partition(":")
    allowed = f"one of {', '.join(sorted(WORKLOADS))}, or module:attribute"
    if not colon:
        raise UnknownWorkloadError(f"the workload {name!r} is not known; allowed is {allowed}")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return cast("MakeWorkload", getattr(import_module(module), attribute))
    except (ImportError, AttributeError) as error:
        raise UnknownWorkloadError(
            f"the workload {name!r} can't be loaded: {error}; allowed is {allowed}"
        ) from error


def run_shape(shape: Shape, make: MakeWorkload) -> SwarmReport | SwarmFailure:
    """Run one shape with a fresh workload. Return its report, or its failure."""
    try:
        return Swarm(shape, make()).run()
    except SwarmFailure as failure:
        return failure
