"""The abort of a transaction that timed out in the last epoch of its producer id: it needs a fresh id (KIP-890)."""

from __future__ import annotations

from blumfeld.spi.completion import Completion
from blumfeld.spi.transactions import TransactionSurroundings
from blumfeld_transactions.commands import AbortExhausted, FetchProducerId


def fetch_producer_id(
    around: TransactionSurroundings, partition: int, epoch: int, effect: FetchProducerId
) -> None:
    """Get a producer id, and have the shard abort the transaction with it. If there is none, the shard's next look at
    timeouts asks again."""

    def got(done: Completion[int]) -> None:
        if done.error is None:
            command = AbortExhausted(
                transactional_id=effect.transactional_id,
                producer_id=effect.producer_id,
                epoch=effect.epoch,
                fresh_id=done.result(),
            )
            around.submit_in_epoch(partition, epoch, command)

    around.new_producer_id().when_done(got)
