"""``uniform``: as many partitions for each member as for any other, and as few of them moved as can be."""

from __future__ import annotations

from collections.abc import Generator

from blumfeld.spi.assignors import Assignment, AssignmentSpec
from blumfeld_groups_kip848.assignors.even import deal_evenly
from blumfeld_groups_kip848.assignors.fair import deal_fairly
from blumfeld_groups_kip848.assignors.holdings import retained


class UniformAssignor:
    """Balance comes first, then stickiness, then racks.

    Members that subscribe to the same topics get the same number of partitions, or one more. Where subscriptions
    differ no member could be given more without taking it from one that has no more than that. What a member had
    it keeps, unless that balance needs it. Of what is dealt anew a member gets first what has a replica in its
    rack.
    """

    name = "uniform"

    def assign(self, spec: AssignmentSpec) -> Generator[int, None, Assignment]:
        """Never fails."""
        if not spec.members:
            return {}
        holdings = yield from retained(spec)
        if spec.homogeneous:
            return (yield from deal_evenly(holdings))
        return (yield from deal_fairly(holdings))
