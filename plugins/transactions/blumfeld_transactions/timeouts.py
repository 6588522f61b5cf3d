"""Producer ids for transactions that timed out and lack one for their abort; log lines for those that keep open."""

from __future__ import annotations

from blumfeld.coordinator.runtime.coordinator import Coordinator
from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.internal_topics import TRANSACTIONS_TOPIC
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.transactions import TransactionSurroundings
from blumfeld_transactions.commands import AbortExhausted, FetchProducerId, TellCannotAbort


class TimeoutEffects:
    """Gets producer ids for transactions that timed out in the last epoch of theirs (KIP-890), and tells which can't be
    aborted."""

    def __init__(self, runtime: Runtime, events: EventLog, around: TransactionSurroundings) -> None:
        self._events = events
        self._repeated = RepeatedEvents(runtime)
        self._coordinator: Coordinator = around.coordinator
        self._new_producer_id = around.new_producer_id
        self._asked: set[tuple[int, int, FetchProducerId]] = set()
        """(partition, leader epoch, effect) of the shards that wait for a producer id. A controller may be away for
        longer than the pause between two looks at timeouts: asked again each time, it would give an id for each."""

    def perform(self, partition: int, epoch: int, effect: FetchProducerId | TellCannotAbort) -> None:
        """Get a producer id, and have the shard abort the transaction with it; or log that it can't be aborted."""
        if isinstance(effect, FetchProducerId):
            self._fetch(partition, epoch, effect)
        else:
            self._repeated.say(
                self._events.error,
                "a transaction timed out and can't be aborted, because its record is larger than max.message.bytes of "
                f"{TRANSACTIONS_TOPIC} allows: raise it",
                effect.transactional_id,
                transactional_id=effect.transactional_id,
                partitions=effect.partitions,
            )

    def _fetch(self, partition: int, epoch: int, effect: FetchProducerId) -> None:
        fetch_key = (partition, epoch, effect)
        if fetch_key in self._asked:
            return
        self._asked.add(fetch_key)

        def got(done: Completion[int]) -> None:
            if done.error is not None:  # the shard's next look at timeouts asks again
                self._asked.discard(fetch_key)
                return
            command = AbortExhausted(
                transactional_id=effect.transactional_id,
                producer_id=effect.producer_id,
                epoch=effect.epoch,
                fresh_id=done.result(),
            )
            completion = self._coordinator.submit_in_epoch(partition, epoch, command)
            completion.when_done(lambda _: self._asked.discard(fetch_key))

        self._new_producer_id().when_done(got)
