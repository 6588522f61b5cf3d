"""The markers that wait for the next request to one broker, by partition. Pure.

A request takes all markers of a partition that wait, before it takes those of the next partition. So the broker writes
each partition's markers together: many transactions that end at once cost one write for each partition.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from blumfeld_transactions.commands import WriteMarkers
from blumfeld_transactions.transaction import Partition


class Order(NamedTuple):
    """The place of an effect: the shard that ordered it, in its leader epoch."""

    partition: int
    epoch: int
    transactional_id: str
    producer_id: int
    producer_epoch: int


class Pending:
    """One transaction whose markers are being written. Queues and requests under way hold this object, not its order:
    with the first generation the next transaction has an equal order, and a late answer is not about it."""

    __slots__ = ("left", "markers", "order", "reported")

    def __init__(self, order: Order, markers: WriteMarkers) -> None:
        self.order = order
        self.markers = markers
        self.left = set(markers.partitions)
        """Partitions whose marker isn't written yet."""
        self.reported = False
        """Whether the shard is being told that all are written."""


Taken: TypeAlias = "dict[Pending, list[Partition]]"


class MarkerQueue:
    """The markers for one broker: partitions in the order in which they came, each with its transactions in theirs."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[Partition, list[Pending]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, one: Pending, partitions: Iterable[Partition]) -> None:
        """Add a transaction's markers for these partitions."""
        waiting = self._waiting
        for at in partitions:
            if at in waiting:
                waiting[at].append(one)
            else:
                waiting[at] = [one]

    def take(self, most: int) -> Taken:
        """Remove the markers that waited longest, ``most`` at most, and return them by transaction.

        The rest of a partition that has more waits behind the other partitions.
        """
        taken: Taken = {}
        gone: list[Partition] = []
        rest: list[Pending] = []
        for at, some in self._waiting.items():
            gone.append(at)
            if len(some) > most:
                some, rest = some[:most], some[most:]
            for one in some:
                if one in taken:
                    taken[one].append(at)
                else:
                    taken[one] = [at]
            most -= len(some)
            if not most:
                break
        for at in gone:
            del self._waiting[at]
        if rest:
            self._waiting[gone[-1]] = rest
        return taken
