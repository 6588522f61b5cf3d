"""Transaction coordination: shards on ``__transaction_state``, and what their plug-in is handed (KIP-98, KIP-890)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.schema import Message

Outcomes: TypeAlias = Mapping[tuple[str, int], ErrorCode]
"""(topic, index) → the outcome for that partition."""


class PartitionsOfTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """A question of a partition's leader before the first batch of a transaction: are these partitions in it?"""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[tuple[str, int]]
    add: bool
    """Add those that are not in it, with transactions of version 2. Otherwise say which are."""


class TransactionSurroundings(Protocol):
    """The broker around a transaction coordinator."""

    def image(self) -> ClusterImage:
        """The cluster, as of now."""
        ...

    def submit(self, transactional_id: str, command: Any, context: RequestContext | None) -> Completion[Any]:
        """Have the shard of the transactional id decide. Completes with its reply once that is committed.

        Fails with the command's ``BrokerError``, NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS.
        """
        ...

    def submit_in_epoch(self, partition: int, epoch: int, command: Any) -> Completion[Any]:
        """Have the shard of a partition decide: on the outcome of an effect that it ordered in this leader epoch, or on
        a question to it alone. Fails as :meth:`submit`, and with NOT_COORDINATOR if the partition's shard lives in
        another epoch.
        """
        ...

    def shards(self) -> list[tuple[int, int]]:
        """Returns (partition, leader epoch) of every shard on this node, also of one that is still replayed."""
        ...

    def coordinates(self, partition: int, epoch: int) -> bool:
        """Whether the partition's shard lives here in this leader epoch. Otherwise its orders are nobody's any more."""
        ...

    def new_producer_id(self) -> Completion[int]:
        """A producer id that nobody has. Fails with COORDINATOR_LOAD_IN_PROGRESS if the controller gives none."""
        ...

    def make_offsets_topic(self) -> None:
        """Have ``__consumer_offsets`` created, if it isn't there. A request that needs it is told to come again."""
        ...

    def write_markers(self, node_id: int, request: Message) -> Completion[Message]:
        """Send WriteTxnMarkers to a broker, this one included. Completes with the response. Fails with ``OSError``,
        ``TimeoutError`` or ``BrokerError``.
        """
        ...


class TransactionCoordinator(Protocol):
    """Made by ``blumfeld_make_transactions``: a shard type on ``__transaction_state``, with its handlers."""

    def attach(self, surroundings: TransactionSurroundings) -> None:
        """Take the surroundings. Called once, before everything else."""
        ...

    def handlers(self) -> Sequence[ApiHandler]:
        """Its API handlers: AddPartitionsToTxn, AddOffsetsToTxn, EndTxn…. Not InitProducerId, which producers without
        transactions send, too.
        """
        ...

    def init_producer_id(self, request: Message, context: RequestContext) -> Completion[Message]:
        """Answer an InitProducerId that has a transactional id. The principal may write to it."""
        ...

    def partitions_of(self, asked: PartitionsOfTransaction) -> Completion[Outcomes]:
        """Answer a partition's leader on this node, if this node has the transactional id's shard. Fails as
        :meth:`TransactionSurroundings.submit`.
        """
        ...

    def new_shard(self) -> Any:
        """A fresh shard: implements ``blumfeld.coordinator.runtime.shard_contract.Shard``."""
        ...

    def metrics(self, shards: Callable[[], Iterable[Any]]) -> Sequence[Any]:
        """Returns its gauges, each a ``blumfeld.spi.hooks.Metric``. Called once when the metrics endpoint opens.

        :param shards: gives the shards that are loaded on this node
        """
        ...

    def perform(self, partition: int, epoch: int, effect: Any) -> None:
        """Begin an effect that the shard of a partition ordered in this leader epoch, after its commit."""
        ...
