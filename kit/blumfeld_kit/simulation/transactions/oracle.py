"""All transactions of a run as their clients saw them, and what excuses which of them."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from blumfeld.coordinator.runtime.coordinator import partition_for
from blumfeld.spi.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from blumfeld.spi.storage import TopicPartition
from blumfeld_kit.simulation.clients.oracle import NEVER_S, Oracle, ViolationError
from blumfeld_kit.simulation.transactions.histories import (
    Append,
    Incarnation,
    Outcome,
    Transaction,
    View,
)

INTERNAL_PARTITIONS = 2
"""Partitions of each internal topic."""


class Fate(Enum):
    """The fate of a client that has asked for a commit."""

    GOES_ON = "goes on"
    DIES = "dies"
    """It ends before it has the answer."""
    LINGERS = "lingers"
    """It is slow in its next transaction."""


class Name:
    """A transactional id of a client, and of its rival. It is given up for a new one behind an excuse."""

    def __init__(self, base: str, group: bool) -> None:
        self.base = base
        self.changes = 0
        self.has_group = group
        self.consumes: tuple[TopicPartition, ...] = ()
        """Partitions that the group of this client consumes."""

    @property
    def id(self) -> str:
        """The transactional id of now."""
        return f"{self.base}~{self.changes}" if self.changes else self.base

    @property
    def group(self) -> str:
        """The group that the client commits for; empty if it consumes nothing."""
        return f"group-{self.id}" if self.has_group else ""


class TransactionOracle(Oracle):
    """The oracle of data partitions and of the partitions of the internal topics."""

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, Name] = {}
        self.incarnations: list[Incarnation] = []
        self.transactions: list[Transaction] = []
        self.spoiled_groups: dict[str, None] = {}
        """Groups that may have lost offsets, or records that they consumed."""
        self.excused_names: dict[str, None] = {}
        """Transactional ids whose coordinator may have lost what it knew."""
        self.views: list[View] = []
        self.shown: dict[TopicPartition, dict[int, bytes]] = {}
        """Partition → offset → value, as any reader saw it."""
        self.generation_max = 2
        """Generation of the protocol that the cluster has finalized for sure."""
        self.clocks_lie = False
        """Whether wall clocks jump in this run, or go wrong."""
        self.coordinator_changed: Callable[[str], bool] = lambda name: False
        """Tells whether a transactional id may have been judged by a coordinator that has a successor."""
        self.ending: Callable[[Transaction], None] = lambda transaction: None
        """Called when a client asks for the end of a transaction."""
        self.deciding: Callable[[Transaction], Fate] = lambda transaction: Fate.GOES_ON
        """Called when a client asks for a commit, and could die in it."""

    def data(self) -> list[TopicPartition]:
        """The partitions that hold lists."""
        return [
            partition
            for partition in self.partitions
            if partition.topic not in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
        ]

    def name(self, base: str, *, consumes: tuple[TopicPartition, ...] = ()) -> Name:
        """Return a client's transactional id. Its rival gets the same one."""
        name = self.names.get(base)
        if name is None:
            name = self.names[base] = Name(base, bool(consumes))
            name.consumes = consumes
        return name

    # Excuses

    def excuse(self, partition: TopicPartition, now_s: float) -> None:
        """As ``Oracle.excuse``. Clients whose promises depended on the partition begin anew."""
        self.partitions[partition].excuse(now_s)
        self.shown.pop(partition, None)
        self.views = [view for view in self.views if view.partition != partition]
        if partition.topic == TRANSACTIONS_TOPIC:
            for incarnation in self.incarnations:
                if partition_for(incarnation.name, INTERNAL_PARTITIONS) == partition.partition:
                    incarnation.excused = True
                    self.excused_names[incarnation.name] = None
        for name in self.names.values():
            if partition.topic == TRANSACTIONS_TOPIC:
                hit = partition_for(name.id, INTERNAL_PARTITIONS) == partition.partition
            elif partition.topic == OFFSETS_TOPIC:
                hit = name.has_group and partition_for(name.group, INTERNAL_PARTITIONS) == partition.partition
            else:
                hit = partition in name.consumes
            if hit:
                self.spoiled_groups[name.group] = None
                name.changes += 1

    def excused_s(self, partition: TopicPartition) -> float:
        """Return the time up to which a partition may have lost records; -1: it lost none."""
        return self.partitions[partition].excused_s

    # Clients

    def incarnation(self, name: str, now_s: float) -> Incarnation:
        """Note that a process asks for an epoch of a transactional id."""
        incarnation = Incarnation(
            name=name, number=len(self.incarnations), asked_s=now_s, excused=name in self.excused_names
        )
        self.incarnations.append(incarnation)
        return incarnation

    def begin(self, incarnation: Incarnation, generation: int, now_s: float) -> Transaction:
        """Note that a client begins a transaction."""
        transaction = Transaction(
            number=len(self.transactions), incarnation=incarnation, generation=generation, began_s=now_s
        )
        self.transactions.append(transaction)
        self.counts["transactions"] += 1
        return transaction

    def append(self, transaction: Transaction, append: Append) -> None:
        """Note that a value is about to be sent for the first time."""
        transaction.appends.append(append)
        self.counts["appends"] += 1

    def ended(self, transaction: Transaction, outcome: Outcome, now_s: float) -> None:
        """Note what a client knows of the end of its transaction."""
        transaction.outcome = outcome
        transaction.ended_s = now_s
        self.counts[outcome.value] += 1

    def read(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        """Check a record that any reader was shown. :raises ViolationError: another reader saw another one there"""
        before = self.shown.setdefault(partition, {}).setdefault(offset, value)
        if before != value:
            raise ViolationError(f"{partition}@{offset}: {value!r} is shown, and {before!r} was")
        self.counts["read"] += 1

    # Refusals

    def reason_to_refuse(self, transaction: Transaction, timeout_ms: int, now_s: float) -> bool:
        """Whether a broker may refuse to go on with a transaction: another process took over, its time is over,
        something was lost that an excuse covers, or a coordinator that has a successor judged it by what it knew.

        A fenced process that asks late for a further epoch is no such process: it is refused, and harms nobody.
        """
        own = transaction.incarnation
        rivals = any(
            other.name == own.name
            and other is not own
            and (other.known_s < 0 or other.known_s >= own.asked_s)
            for other in self.incarnations
        )
        timed_out = now_s - transaction.began_s >= timeout_ms / 1_000 * 0.7 or self.clocks_lie
        lost = (
            own.excused
            or own.repeated
            or any(
                partition.excused_s > NEVER_S and partition.excused_s >= transaction.began_s - 30.0
                for partition in self.partitions.values()
            )
        )
        return rivals or timed_out or lost or self.coordinator_changed(own.name)
