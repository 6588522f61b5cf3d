"""Transaction coordination: shards on ``__transaction_state``, and what their plug-in is handed (KIP-98, KIP-890)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec

from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import ClusterMetadata
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


class TransactionSurroundings(NamedTuple):
    """The objects that a broker hands to a coordinator of transactions."""

    coordinator: Any
    """The shards of ``__transaction_state`` that this node leads, each made by
    :meth:`TransactionCoordinator.new_shard`: a ``blumfeld.coordinator.runtime.coordinator.Coordinator``."""
    metadata: ClusterMetadata
    """The node's consensus, which has the image of the cluster."""
    new_producer_id: Callable[[], Completion[int]]
    """Gives a producer id that nobody has. Fails with COORDINATOR_LOAD_IN_PROGRESS if the controller gives none."""
    make_offsets_topic: Callable[[], None]
    """Has ``__consumer_offsets`` created, if it isn't there. A request that needs it is told to come again."""
    send: Callable[[int, Message], Completion[Message]]
    """Sends a request to a broker, by its node id: WriteTxnMarkers, to this broker, too; to another one also
    AddPartitionsToTxn. Completes with the response. Fails with ``OSError``, ``TimeoutError`` or ``BrokerError``."""


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
        """Answer a partition's leader on this node: by the transactional id's shard, here or at another node.

        Fails with ``BrokerError``: the coordinator's error, or COORDINATOR_NOT_AVAILABLE if it can't be reached.
        """
        ...

    def new_shard(self) -> Any:
        """A fresh shard: implements ``blumfeld.coordinator.runtime.shard_contract.Shard``."""
        ...

    def metrics(self) -> Sequence[Any]:
        """Returns its gauges, each a ``blumfeld.spi.hooks.Metric``. Called once when the metrics endpoint opens."""
        ...

    def perform(self, partition: int, epoch: int, effect: Any) -> None:
        """Begin an effect that the shard of a partition ordered in this leader epoch, after its commit."""
        ...
