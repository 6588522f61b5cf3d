"""Histories of transactions, as their clients saw it and as the logs have it in the end. Pure values.

A transaction appends unique values to lists, one list a partition. So a value names its transaction, and the order of
the values in a list is known. :mod:`blumfeld_kit.simulation.transactions.checker` judges such a history.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from blumfeld.spi.storage import TopicPartition

NEVER_S = -1.0
Place = tuple[TopicPartition, int]
"""A record: its partition and offset."""


class Outcome(Enum):
    """The knowledge of a client about the end of a transaction."""

    COMMITTED = "committed"
    """The commit was acknowledged."""
    ABORTED = "aborted"
    """The abort was acknowledged, the commit was refused, or nobody ever asked for a commit."""
    UNKNOWN = "unknown"
    """A commit was asked for, and its answer never came."""


class Append(msgspec.Struct, kw_only=True):
    """One value that a transaction appends."""

    partition: TopicPartition
    value: bytes
    sent_s: float
    """Virtual time at which it was sent first."""
    acked_s: float | None = None
    offset: int = -1
    """As acknowledged."""
    source: Place | None = None
    """The record that this one was made of, by a client that consumes, transforms and produces."""
    late: bool = False
    """It was sent after its client had given the transaction up."""


class Incarnation(msgspec.Struct, kw_only=True):
    """A process under a transactional id, from its InitProducerId on."""

    name: str
    """The transactional id."""
    number: int
    asked_s: float
    """Virtual time at which its InitProducerId was sent first."""
    known_s: float = NEVER_S
    """Virtual time of the answer."""
    repeated: bool = False
    """An InitProducerId of this process had no answer, and was repeated. So it may fence the process itself."""
    excused: bool = False
    """The coordinator may have lost what it knew of this transactional id."""


class Transaction(msgspec.Struct, kw_only=True):
    """One transaction of an incarnation."""

    number: int
    """The number of the transaction, in the order in which the run began them."""
    incarnation: Incarnation
    generation: int
    """1: the client adds partitions. 2: each transaction has its own epoch, and Produce adds partitions (KIP-890)."""
    began_s: float
    outcome: Outcome = Outcome.ABORTED
    ended_s: float | None = None
    """Virtual time at which the outcome came to be known."""
    appends: list[Append] = msgspec.field(default_factory=list)
    reads: dict[bytes, None] = msgspec.field(default_factory=dict)
    """Values that it was made of."""
    group: str = ""
    offsets: dict[TopicPartition, int] = msgspec.field(default_factory=dict)
    """Offsets that it commits for the group."""

    @property
    def name(self) -> str:
        """Say which one it is."""
        return f"transaction {self.number} of {self.incarnation.name}/{self.incarnation.number}"


class View(msgspec.Struct, kw_only=True):
    """The records that one read_committed reader saw of one partition, from the beginning to a position."""

    reader: str
    partition: TopicPartition
    position: int
    seen: list[tuple[int, bytes]]
    """(offset, value), in the order of the answers."""


class GroupView(msgspec.Struct, kw_only=True):
    """A group of clients that consume, transform and produce, at the end."""

    name: str
    offsets: dict[TopicPartition, int]
    """Partition that it consumes → committed offset; 0 for none."""
    ignored: frozenset[bytes] = frozenset()
    """Values that it reads without a result."""


class History(msgspec.Struct, kw_only=True):
    """A whole run."""

    transactions: list[Transaction]
    incarnations: list[Incarnation]
    everything: dict[TopicPartition, list[tuple[int, bytes]]]
    """(offset, value) of each record that read_uncommitted shows at the end."""
    committed: dict[TopicPartition, list[tuple[int, bytes]]]
    """Records that read_committed shows at the end."""
    views: list[View] = msgspec.field(default_factory=list)
    groups: list[GroupView] = msgspec.field(default_factory=list)
    """The groups whose offsets nothing excuses."""
    excused_s: dict[TopicPartition, float] = msgspec.field(default_factory=dict)
    """Partition → time up to which its records may be lost (KIP-966)."""

    def may_be_lost(self, append: Append) -> bool:
        """Whether the partition may have lost this value."""
        return append.sent_s <= self.excused_s.get(append.partition, NEVER_S)
