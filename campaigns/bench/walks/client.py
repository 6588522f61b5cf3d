"""A client that sends each request of a walk, and refuses every answer with an error."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import TypeVar

from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from blumfeld.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from blumfeld.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from blumfeld.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from blumfeld.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from blumfeld.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from campaigns.raw_connection import RawConnection

TOPIC = "t"
TRANSACTIONAL_ID = "walk"
RETRY_S = 0.1
TIMEOUT_S = 15.0

T = TypeVar("T")


class Client(RawConnection):
    """A connection to one broker."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._names = (f"topic-{number}" for number in count())
        self._producer = (-1, -1)

    def create(self, name: str | None = None, replicas: Sequence[int] = ()) -> None:
        """Create a topic of one partition, by default with a new name."""
        topic = CreatableTopic(name=name or next(self._names), num_partitions=1, replication_factor=1)
        if replicas:
            topic.num_partitions = topic.replication_factor = -1
            topic.assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))]
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        self._until(lambda: self.ask(request, 7, CreateTopicsResponse).topics[0].error_code)

    def produce(self) -> None:
        """Produce one record with acks=1."""
        batch = bytearray(build_batch([Record(offset=0, timestamp=1, value=b"x")]))
        data = [PartitionProduceData(index=0, records=batch)]
        topics = [TopicProduceData(name=TOPIC, partition_data=data)]
        answer = self.ask(ProduceRequest(acks=1, timeout_ms=10_000, topic_data=topics), 9, ProduceResponse)
        _check(answer.responses[0].partition_responses[0].error_code)

    def init_producer(self) -> None:
        """Become a transactional producer."""
        find = FindCoordinatorRequest(key_type=1, coordinator_keys=[TRANSACTIONAL_ID])
        self._until(lambda: self.ask(find, 4, FindCoordinatorResponse).coordinators[0].error_code)
        init = InitProducerIdRequest(transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=60_000)
        answers: list[InitProducerIdResponse] = []

        def ask() -> int:
            answers.append(self.ask(init, 4, InitProducerIdResponse))
            return answers[-1].error_code

        self._until(ask)
        self._producer = answers[-1].producer_id, answers[-1].producer_epoch

    def begin_transaction(self) -> None:
        """Add the partition to a transaction."""
        producer_id, epoch = self._producer
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTIONAL_ID,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
        )

        def ask() -> int:
            answer = self.ask(request, 3, AddPartitionsToTxnResponse)
            return answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code

        self._until(ask)

    def end_transaction(self) -> None:
        """Commit the transaction."""
        producer_id, epoch = self._producer
        request = EndTxnRequest(
            transactional_id=TRANSACTIONAL_ID, producer_id=producer_id, producer_epoch=epoch, committed=True
        )
        _check(self.ask(request, 3, EndTxnResponse).error_code)

    def _until(self, ask: Callable[[], int]) -> None:
        """Ask until the answer has no error: what it needs may not be there yet."""
        deadline = time.monotonic() + TIMEOUT_S
        while (code := ask()) and time.monotonic() < deadline:
            time.sleep(RETRY_S)
        _check(code)


def _check(code: int) -> None:
    if code:
        raise RuntimeError(f"a request was answered with error {code}")
