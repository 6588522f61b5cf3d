"""The ``uniform`` assignor: even partition counts, with as few moves as possible."""

from __future__ import annotations

from collections.abc import Generator

from blumfeld.spi.assignors import Assignment, AssignmentSpec
from blumfeld_groups_kip848.assignors.even import deal_evenly
from blumfeld_groups_kip848.assignors.fair import deal_fairly
from blumfeld_groups_kip848.assignors.holdings import retained


class UniformAssignor:
    """Balance comes first, then stickiness, then racks.

    With one common subscription the partition counts of any two members differ by at most one. With different
    subscriptions, no member can get more without taking from a member that has no more. A member keeps what
    it had unless the balance needs it. Newly dealt partitions go first to a member in the rack of a replica.
    """

    name = "uniform"

    def assign(self, spec: AssignmentSpec) -> Generator[int, None, Assignment]:
        """Deal the partitions. Raises no error."""
        if not spec.members:
            return {}
        holdings = yield from retained(spec)
        if spec.homogeneous:
            return (yield from deal_evenly(holdings))
        return (yield from deal_fairly(holdings))
