"""The assignors that every build with KIP-848 groups has: Kafka's ``uniform`` and ``range``."""

from __future__ import annotations

from blumfeld.spi.assignors import ConsumerAssignor
from blumfeld_groups_kip848.assignors.range import RangeAssignor
from blumfeld_groups_kip848.assignors.uniform import UniformAssignor


def bundled_assignors() -> tuple[ConsumerAssignor, ...]:
    """The bundled assignors in Kafka's order, the default first."""
    return UniformAssignor(), RangeAssignor()
