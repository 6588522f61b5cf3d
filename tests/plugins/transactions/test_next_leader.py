"""A partition with transactions changes its leader: three nodes on virtual time.

The next leader has the same last stable offset, aborted transactions and producers, and verifies as the last one did.
"""

from __future__ import annotations

import asyncio
from typing import Any

from blumfeld.spi.internal_topics import TRANSACTIONS_TOPIC
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.record_batch import split_batches
from blumfeld.wire.batches.records import Record, records
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from blumfeld.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from blumfeld.wire.messages.fetch import PartitionData
from blumfeld.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from blumfeld.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from blumfeld.wire.messages.produce import ProduceResponse
from blumfeld.wire.schema import Message
from tests.broker.batches import produce
from tests.plugins.replication_isr.three_nodes import TOPIC, ThreeNodes, bytes_of

CONFIG = {"transaction.state.log.num.partitions": 1, "transaction.state.log.replication.factor": 3}
SECTIONS = {"transactions": {"plugin": "transactions"}}
READ_COMMITTED = 1
TRIES = 200


class Producer:
    """A transactional producer of the first generation, in partition 0."""

    def __init__(self, nodes: ThreeNodes, transactional_id: str) -> None:
        self.nodes = nodes
        self.transactional_id = transactional_id
        self.producer_id = self.epoch = -1
        self.sequence = 0

    async def _ask(self, node_id: int, request: Message, version: int, answer: type[Any]) -> Any:
        connection = await self.nodes.connect(node_id)
        try:
            return await asyncio.wait_for(connection.ask(request, version, answer), 10.0)
        finally:
            connection.close()

    async def _coordinator(self, request: Message, version: int, answer: type[Any]) -> Any:
        """Ask the coordinator, until it has an answer that counts."""
        for _ in range(TRIES):
            topic = self.nodes.shared.image.topics.get(TRANSACTIONS_TOPIC)
            leader = -1 if topic is None else topic.partitions[0].leader
            try:
                if leader < 0:
                    find = FindCoordinatorRequest(key_type=1, coordinator_keys=[self.transactional_id])
                    await self._ask(self.nodes.image().leader, find, 4, FindCoordinatorResponse)
                else:
                    response = await self._ask(leader, request, version, answer)
                    if getattr(response, "error_code", 0) not in NOT_NOW:
                        return response
            except (OSError, TimeoutError):
                pass
            await asyncio.sleep(0.1)
        raise AssertionError("no coordinator")

    async def init(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=600_000
        )
        response = await self._coordinator(request, 4, InitProducerIdResponse)
        assert response.error_code == 0, ErrorCode(response.error_code)
        self.producer_id, self.epoch, self.sequence = response.producer_id, response.producer_epoch, 0

    async def begin(self, *values: bytes) -> None:
        """Add the partition, and write a batch."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
        )
        for _ in range(TRIES):
            response = await self._coordinator(request, 3, AddPartitionsToTxnResponse)
            code = response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            if code not in NOT_NOW:
                break
            await asyncio.sleep(0.1)
        assert code == 0, ErrorCode(code)
        assert await self.write(*values) is ErrorCode.NONE

    async def write(self, *values: bytes) -> ErrorCode:
        """A batch, whether the partition is in the transaction or not."""
        data = build_batch(
            [Record(value=value, timestamp=1_700_000_000_000) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        request = produce(
            data, topic=TOPIC, acks=-1, transactional_id=self.transactional_id, timeout_ms=5_000
        )
        for _ in range(TRIES):
            answer = await self._ask(self.nodes.image().leader, request, 11, ProduceResponse)
            code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
            if code not in NOT_NOW:
                break
            await asyncio.sleep(0.1)
        if not code:
            self.sequence += len(values)
        return code

    async def end(self, *, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        response = await self._coordinator(request, 4, EndTxnResponse)
        assert response.error_code == 0, ErrorCode(response.error_code)


NOT_NOW = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)


def view(nodes: ThreeNodes, node_id: int) -> tuple[Any, ...]:
    """What a replica knows of transactions: its ends, the aborted ones, and its producers."""
    replica = nodes.replica(node_id)
    state = replica.state
    aborted = [(e.producer_id, e.first_offset, e.last_offset) for e in state.aborted.entries]
    producers = [
        (e.producer_id, e.epoch, e.last_sequence, e.txn_first_offset) for e in state.producers.producers()
    ]
    return replica.readable_ends(), aborted, producers


async def committed(nodes: ThreeNodes, node_id: int) -> list[bytes]:
    """What a reader of committed records gets from this node, a leader or a follower (KIP-392)."""
    data = await nodes.fetch(node_id, 0, isolation_level=READ_COMMITTED)
    assert data.error_code == 0
    aborted = {(a.producer_id, a.first_offset) for a in data.aborted_transactions or ()}
    return seen(data, aborted)


def seen(data: PartitionData, aborted: set[tuple[int, int]]) -> list[bytes]:
    values: list[bytes] = []
    dropped: set[int] = set()
    for batch in split_batches(memoryview(bytearray(bytes_of(data)))):
        dropped |= {producer for producer, first in aborted if first == batch.base_offset}
        if batch.is_control:
            dropped.discard(batch.producer_id)
        elif batch.producer_id not in dropped:
            values += [bytes(record.value or b"") for record in records(batch)]
    return values


def test_the_next_leader_knows_every_transaction() -> None:
    """Committed, aborted and open ones, right after the fail-over, and when the open one has ended."""
    nodes = ThreeNodes(config=CONFIG, sections=SECTIONS)

    async def story() -> None:
        await nodes.create()
        kept, dropped, left = (Producer(nodes, name) for name in ("kept", "dropped", "left"))
        for producer in (kept, dropped, left):
            await producer.init()
        await kept.begin(b"kept")
        await kept.end(commit=True)
        await dropped.begin(b"dropped", b"too")
        await dropped.end(commit=False)
        await nodes.until(lambda: len(nodes.replica(nodes.image().leader).state.aborted) == 1)
        await left.begin(b"open")
        await nodes.until(lambda: nodes.settled([0]))
        leader = nodes.image().leader
        before = view(nodes, leader)
        (high_watermark, stable), aborted, _ = before
        assert (high_watermark - stable, len(aborted)) == (1, 1), "else this test says nothing"
        for node_id in (1, 2, 3):
            assert view(nodes, node_id) == before
            assert await committed(nodes, node_id) == [b"kept"]

        nodes.machine(leader).crash(power_cut=False)
        await nodes.until(lambda: nodes.image().leader not in (-1, leader))
        after = nodes.image().leader
        await nodes.until(lambda: nodes.replica(after).leader is not None)
        assert view(nodes, after)[1:] == before[1:]
        await nodes.until(lambda: nodes.replica(after).high_watermark == high_watermark)
        assert view(nodes, after) == before
        assert await committed(nodes, after) == [b"kept"]
        assert await left.write(b"more") is ErrorCode.NONE, "an open transaction goes on"
        assert await dropped.write(b"late") is ErrorCode.TRANSACTION_ABORTABLE, (
            "it has ended, so nothing would end it"
        )
        assert view(nodes, after)[0][1] == stable

        assert await nodes.machine(leader).start()
        await left.end(commit=False)
        await nodes.until(lambda: len(nodes.replica(after).state.aborted) == 2)
        await nodes.until(lambda: nodes.settled([0]))
        for node_id in (1, 2, 3):
            (high_watermark, stable), aborted, _ = view(nodes, node_id)
            assert (high_watermark == stable, len(aborted)) == (True, 2)
            assert await committed(nodes, node_id) == [b"kept"]

    nodes.run(story())
