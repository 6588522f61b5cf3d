"""A producer's state between requests: its id, and the next sequence of each partition (KIP-98)."""

from __future__ import annotations

from collections.abc import Hashable

from blumfeld.wire.codec import Buffer
from blumfeld.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

NO_PRODUCER_ID = -1
SEQUENCE_MAX = 0x7FFFFFFF
"""The sequence after it is 0."""


class ProducerIdentity:
    """An idempotent producer's id and epoch, and the sequence that each partition expects next."""

    def __init__(self) -> None:
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = -1
        self._next: dict[Hashable, int] = {}

    @property
    def known(self) -> bool:
        """Whether a broker has given an id."""
        return self.producer_id != NO_PRODUCER_ID

    def given(self, producer_id: int, producer_epoch: int) -> None:
        """Take the id that InitProducerId answered with."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch

    def take(self, partition: Hashable, records: int) -> int:
        """Return the base sequence of a new batch. A retry of the batch keeps it, or the broker can't know it again."""
        base = self._next.get(partition, 0)
        self._next[partition] = (base + records) & SEQUENCE_MAX
        return base

    def forget(self) -> None:
        """Drop the id: a new one begins at sequence 0 in every partition."""
        self.producer_id = NO_PRODUCER_ID
        self._next.clear()


def one_batch(
    topic: str, partition: int, records: Buffer, *, acks: int = -1, timeout_ms: int = 30_000
) -> ProduceRequest:
    """Return the request that appends one batch to one partition, by the topic's name (up to version 12)."""
    data = PartitionProduceData(index=partition, records=records)
    topic_data = [TopicProduceData(name=topic, partition_data=[data])]
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topic_data)


def only_outcome(answer: ProduceResponse) -> PartitionProduceResponse:
    """Return the outcome in the answer to :func:`one_batch`."""
    [topic] = answer.responses
    [outcome] = topic.partition_responses
    return outcome
