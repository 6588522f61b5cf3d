"""The plug-in: the hook that makes the coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, cast

import msgspec

from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.hooks import Composition, Feature, Metric, NoOptions, hookimpl
from blumfeld.spi.transactions import Outcomes, PartitionsOfTransaction, TransactionSurroundings
from blumfeld.wire.schema import Message
from blumfeld_transactions.apis import API_TABLE, LazyApi

if TYPE_CHECKING:
    from blumfeld.config.values import BrokerConfig
    from blumfeld.wire.messages.init_producer_id import InitProducerIdRequest
    from blumfeld_transactions.commands import WriteMarkers
    from blumfeld_transactions.handlers import TransactionApis
    from blumfeld_transactions.markers import MarkerSender
    from blumfeld_transactions.shard import Limits, TransactionShard
    from blumfeld_transactions.timeouts import TimeoutEffects

TRANSACTION_VERSION = Feature("transaction.version", 0, 2, 2)
"""0: the first generation. 1: flexible records. 2: each transaction has its own epoch (KIP-890)."""


class Transactions:
    """The coordinator of transactions: implements ``spi.transactions.TransactionCoordinator``.

    Its modules are imported with the first request, or with the first shard, so that a start pays for none.
    """

    def __init__(self, composition: Composition) -> None:
        self._runtime = composition.runtime
        self._events = composition.log("transactions")
        self._config = composition.config
        self._apis: TransactionApis | None = None
        self._markers: MarkerSender | None = None
        self._timeouts: TimeoutEffects | None = None

    def attach(self, surroundings: TransactionSurroundings) -> None:
        """Take the surroundings."""
        self._around = surroundings

    def handlers(self) -> Sequence[ApiHandler]:
        """AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, DescribeTransactions, ListTransactions."""
        return [LazyApi(self._around, self._runtime, row).handler() for row in API_TABLE]

    def init_producer_id(self, request: Message, context: RequestContext) -> Completion[Message]:
        """As :meth:`TransactionApis.init_producer_id`."""
        if self._apis is None:
            from blumfeld_transactions.handlers import TransactionApis

            self._apis = TransactionApis(self._around)
        return self._apis.init_producer_id(cast("InitProducerIdRequest", request), context)

    def partitions_of(self, asked: PartitionsOfTransaction) -> Completion[Outcomes]:
        """Have the shard say which partitions are in the transaction, or add them."""
        from blumfeld_transactions.handlers import submit_partitions

        return submit_partitions(self._around, asked)

    def new_shard(self) -> TransactionShard:
        """Make a shard without transactional ids."""
        from blumfeld_transactions.shard import TransactionShard

        return TransactionShard(limits(self._config), self._version)

    def _version(self) -> int:
        return self._around.image().features.get(TRANSACTION_VERSION.name, 0)

    def metrics(self, shards: Callable[[], Iterable[TransactionShard]]) -> Sequence[Metric]:
        """Open transactions, the oldest one's age, markers that wait, transactional ids."""
        from blumfeld_transactions.gauges import gauges

        return gauges(shards, lambda: 0 if self._markers is None else self._markers.waiting, self._runtime)

    def perform(self, partition: int, epoch: int, effect: object) -> None:
        """Write the markers of a transaction, get the producer id that its abort needs, or tell that it can't be
        aborted."""
        from blumfeld_transactions.commands import FetchProducerId, TellCannotAbort

        if isinstance(effect, FetchProducerId | TellCannotAbort):
            if self._timeouts is None:
                from blumfeld_transactions.timeouts import TimeoutEffects

                self._timeouts = TimeoutEffects(self._runtime, self._events, self._around)
            self._timeouts.perform(partition, epoch, effect)
            return
        if self._markers is None:
            from blumfeld_transactions.markers import MarkerSender

            self._markers = MarkerSender(self._runtime, self._events, self._around)
        self._markers.begin(partition, epoch, cast("WriteMarkers", effect))


def limits(config: BrokerConfig) -> Limits:
    """Returns the shard's configuration."""
    from blumfeld_transactions.shard import Limits

    return Limits(
        timeout_ms_max=config.int("transaction.max.timeout.ms"),
        abort_interval_ms=config.int("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
        expiration_ms=config.int("transactional.id.expiration.ms"),
        forget_interval_ms=config.int("transaction.remove.expired.transaction.cleanup.interval.ms"),
    )


class Plugin:
    """The plug-in ``transactions``. Making it opens nothing."""

    options_class: type[msgspec.Struct] = NoOptions
    roles: tuple[str, ...] = ("transactions",)

    @hookimpl
    def blumfeld_features(self) -> Sequence[Feature]:
        """The feature ``transaction.version``, levels 0–2."""
        return (TRANSACTION_VERSION,)

    @hookimpl
    def blumfeld_make_transactions(self, composition: Composition) -> Transactions:
        """The coordinator of transactions."""
        return Transactions(composition)
