"""A coordinator fails at each step of a transaction's end, and another one takes over (ADR 0036 has the table).

The shard runs on the coordinator runtime. A failover gives the next shard the log as bytes, in a later leader epoch,
with or without the records that were not committed.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from blumfeld.coordinator.runtime.coordinator import RELOAD_DELAY_MS, Coordinator
from blumfeld.spi.completion import Completion
from blumfeld.spi.groups import CoordinatorRecord
from blumfeld.spi.transactions import TransactionSurroundings
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from blumfeld.wire.schema import Message
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_transactions.commands import (
    AddPartitions,
    EndTransaction,
    FetchProducerId,
    InitProducer,
    NeedsProducerId,
)
from blumfeld_transactions.markers import MarkerSender
from blumfeld_transactions.shard import TransactionShard
from blumfeld_transactions.timeouts import TimeoutEffects
from blumfeld_transactions.transaction import EPOCHS_EXHAUSTED_FROM, State, Transaction, record
from tests.coordinator.fakes import Events, FakeLog, code_of
from tests.plugins.transactions.rows import FRESH, ID, LIMITS, PRODUCER

PARTITIONS = frozenset([("t", 0), ("t", 1)])
LEADERS = {0: 1, 1: 2}
TIMEOUT_MS = 60_000


class Cluster:
    """The nodes that coordinate one after the other, on one log; and the brokers that are sent markers."""

    def __init__(self, version: int, epoch: int = 0) -> None:
        self.version = version
        self.runtime = FakeRuntime()
        self.requests: list[tuple[WriteTxnMarkersRequest, Completion[Message]]] = []
        self.ids: list[Completion[int]] = []
        now_ms = self.runtime.now_ms()
        empty = Transaction(
            producer_id=PRODUCER, epoch=epoch, timeout_ms=TIMEOUT_MS, state=State.EMPTY, updated_ms=now_ms
        )
        self.log = FakeLog()
        self.start([record(ID, empty, version)])

    def start(self, items: list[Any], epoch: int = 1) -> None:
        """A node becomes the leader of the log."""
        self.log = FakeLog([CoordinatorRecord(item.key, item.value) for item in items])
        self.log.epoch = epoch
        self.coordinator = Coordinator(
            self.runtime,
            Events(),
            lambda _: TransactionShard(LIMITS, lambda: self.version),
            lambda: 1,
            self.perform,
        )
        around = Node(self, self.coordinator)
        self.sender = MarkerSender(
            self.runtime, cast("Any", Events()), cast("TransactionSurroundings", around)
        )
        self.timeouts = TimeoutEffects(
            self.runtime, cast("Any", Events()), cast("TransactionSurroundings", around)
        )
        self.coordinator.elected(0, self.log)
        self.runtime.run_turn()

    def perform(self, partition: int, epoch: int, effect: Any) -> None:
        if isinstance(effect, FetchProducerId):
            self.timeouts.perform(partition, epoch, effect)
        else:
            self.sender.begin(partition, epoch, effect)

    def fail_over(self, *, lost: int = 0) -> list[tuple[WriteTxnMarkersRequest, Completion[Message]]]:
        """Another node becomes the coordinator. The log's last records may be lost, if they were not committed.

        Returns the requests that the former coordinator still has under way.
        """
        items = self.log.items[: len(self.log.items) - lost]
        self.coordinator.resigned(0)
        under_way, self.requests = self.requests, []
        self.start(items, self.log.epoch + 1)
        return under_way

    def submit(self, command: Any) -> Completion[Any]:
        return self.coordinator.submit(ID, command, None)

    def begin(self) -> None:
        known = self.known
        self.submit(
            AddPartitions(
                transactional_id=ID,
                producer_id=known.producer_id,
                epoch=known.epoch,
                partitions=PARTITIONS,
                client_version=self.version,
            )
        ).result()

    def end(self, epoch: int | None = None, fresh_id: int = -1, commit: bool = True) -> Completion[Any]:
        ended = self.submit(
            EndTransaction(
                transactional_id=ID,
                producer_id=PRODUCER,
                epoch=self.known.epoch if epoch is None else epoch,
                commit=commit,
                client_version=self.version,
                fresh_id=fresh_id,
            )
        )
        self.runtime.run_turn()
        return ended

    def answer(
        self, requests: list[tuple[WriteTxnMarkersRequest, Completion[Message]]] | None = None
    ) -> None:
        """The brokers have written all markers that were sent."""
        self.runtime.run_turn()
        while waiting := self.requests if requests is None else requests:
            request, answer = waiting.pop(0)
            answer.complete(WriteTxnMarkersResponse(markers=[_written(marker) for marker in request.markers]))

    @property
    def sent(self) -> list[tuple[int, bool, int, int]]:
        """(partition, commit, producer epoch, coordinator epoch) of each marker under way, after this turn's end."""
        self.runtime.run_turn()
        return sorted(
            (index, marker.transaction_result, marker.producer_epoch, marker.coordinator_epoch)
            for request, _ in self.requests
            for marker in request.markers
            for topic in marker.topics
            for index in topic.partition_indexes
        )

    @property
    def known(self) -> Transaction:
        host = self.coordinator.host_of(ID)
        assert host is not None
        transaction = cast("TransactionShard", host.shard).find(ID)
        assert transaction is not None
        return transaction


class Node:
    """The parts of ``TransactionSurroundings`` that markers and timeouts need."""

    def __init__(self, cluster: Cluster, coordinator: Coordinator) -> None:
        self.cluster, self.coordinator, self.metadata = cluster, coordinator, self

    @property
    def image(self) -> Any:
        partitions = {index: SimpleNamespace(leader=leader) for index, leader in LEADERS.items()}
        return SimpleNamespace(topics={"t": SimpleNamespace(partitions=partitions)})

    def new_producer_id(self) -> Completion[int]:
        wanted: Completion[int] = Completion()
        self.cluster.ids.append(wanted)
        return wanted

    def send(self, node_id: int, request: Message) -> Completion[Message]:
        answer: Completion[Message] = Completion()
        self.cluster.requests.append((cast("WriteTxnMarkersRequest", request), answer))
        return answer


def _written(marker: Any) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        producer_id=marker.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(partition_index=index)
                    for index in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ],
    )


def both(cluster: Cluster, epoch: int, *, commit: bool = True) -> list[tuple[int, bool, int, int]]:
    """The markers of both partitions, of the coordinator of now."""
    return [(index, commit, epoch, cluster.log.epoch) for index in (0, 1)]


@pytest.fixture(params=[0, 2])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """A cluster with transactions of the first version, or of the second (KIP-890)."""
    return Cluster(request.param)


def test_before_prepare_commit_is_written(cluster: Cluster) -> None:
    """The decision is lost, and no marker was sent by it. The producer asks again."""
    cluster.begin()
    cluster.log.hold = True
    end_answer = cluster.end()
    assert cluster.sent == []
    cluster.fail_over(lost=1)
    assert code_of(end_answer) is ErrorCode.NOT_COORDINATOR
    assert (cluster.known.state, cluster.sent) == (State.ONGOING, [])
    assert cluster.end().result().error_code == 0
    assert cluster.sent == both(cluster, cluster.known.epoch)


def test_before_prepare_commit_is_written_and_nobody_asks_again(cluster: Cluster) -> None:
    """Then the timeout aborts."""
    cluster.begin()
    cluster.log.hold = True
    cluster.end()
    cluster.fail_over(lost=1)
    cluster.runtime.advance(TIMEOUT_MS + LIMITS.abort_interval_ms)
    assert cluster.sent == both(cluster, 1, commit=False)
    cluster.answer()
    assert cluster.known.state is State.COMPLETE_ABORT


def test_prepare_commit_survives_before_its_answer(cluster: Cluster) -> None:
    """The former coordinator knew of no commit: it sent neither an answer nor markers."""
    cluster.begin()
    cluster.log.hold = True
    end_answer = cluster.end()
    cluster.fail_over()
    assert code_of(end_answer) is ErrorCode.NOT_COORDINATOR
    epoch = cluster.known.epoch
    assert cluster.sent == both(cluster, epoch)
    assert code_of(cluster.end(0)) is ErrorCode.CONCURRENT_TRANSACTIONS
    cluster.answer()
    assert cluster.end(0).result().error_code == 0


def test_before_a_marker(cluster: Cluster) -> None:
    cluster.begin()
    cluster.end().result()
    late = cluster.fail_over()
    assert cluster.sent == both(cluster, cluster.known.epoch)
    written = len(cluster.log.items)
    cluster.answer(late)
    assert (len(cluster.log.items), cluster.known.state) == (written, State.PREPARE_COMMIT)
    cluster.answer()
    assert cluster.known.state is State.COMPLETE_COMMIT


def test_between_two_markers(cluster: Cluster) -> None:
    """Both are written again. Where one is already, the second ends nothing."""
    cluster.begin()
    cluster.end().result()
    cluster.answer([cluster.requests.pop(0)])
    assert cluster.known.state is State.PREPARE_COMMIT
    late = cluster.fail_over()
    assert cluster.sent == both(cluster, cluster.known.epoch)
    cluster.answer()
    written = len(cluster.log.items)
    cluster.answer(late)
    assert (len(cluster.log.items), cluster.known.state) == (written, State.COMPLETE_COMMIT)


@pytest.mark.parametrize("lost", [0, 1])
def test_after_the_markers_before_complete_commit_is_committed(cluster: Cluster, lost: int) -> None:
    """Whether the record survives or not, the transaction is complete once."""
    cluster.begin()
    cluster.end().result()
    cluster.log.hold = True
    cluster.answer()
    cluster.fail_over(lost=lost)
    assert cluster.sent == (both(cluster, cluster.known.epoch) if lost else [])
    cluster.answer()
    states = [item for item in cluster.log.items if b"tx" in item.key]
    assert (cluster.known.state, len(states)) == (
        State.COMPLETE_COMMIT,
        4,
    )  # Empty, Ongoing, Prepare, Complete


def test_after_complete_commit_before_the_answer_to_end_txn(cluster: Cluster) -> None:
    cluster.begin()
    first = cluster.end().result()
    cluster.answer()
    cluster.fail_over()
    again = cluster.end(0).result()
    assert (again.error_code, again.producer_id, again.producer_epoch) == (
        0,
        first.producer_id,
        first.producer_epoch,
    )
    assert code_of(cluster.end(0, commit=False)) is ErrorCode.INVALID_TXN_STATE
    assert cluster.sent == []


def test_a_rotation_of_the_producer_id_goes_on_at_the_next_coordinator() -> None:
    """The epochs ran out at EndTxn. The next id lies in the record of the decision."""
    cluster = Cluster(2, EPOCHS_EXHAUSTED_FROM)
    cluster.begin()
    assert isinstance(cluster.end().result(), NeedsProducerId)
    assert cluster.known.state is State.ONGOING
    cluster.fail_over()
    assert cluster.end(fresh_id=FRESH).result().producer_id == FRESH
    cluster.fail_over()
    assert cluster.sent == both(cluster, EPOCHS_EXHAUSTED_FROM + 1)
    assert code_of(cluster.end(EPOCHS_EXHAUSTED_FROM)) is ErrorCode.CONCURRENT_TRANSACTIONS
    cluster.answer()
    cluster.fail_over()
    assert (cluster.known.producer_id, cluster.known.epoch) == (FRESH, 0)
    again = cluster.end(EPOCHS_EXHAUSTED_FROM).result()
    assert (again.error_code, again.producer_id, again.producer_epoch) == (0, FRESH, 0)


def test_a_timeout_in_the_last_epoch_that_a_failover_interrupts() -> None:
    """The id that comes for the former coordinator changes nothing. The next one's timeout asks for another."""
    cluster = Cluster(2, EPOCHS_EXHAUSTED_FROM)
    cluster.begin()
    cluster.runtime.advance(TIMEOUT_MS + LIMITS.abort_interval_ms)
    assert (len(cluster.ids), cluster.known.state) == (1, State.ONGOING)
    cluster.fail_over()
    cluster.ids.pop().complete(FRESH - 1)
    assert cluster.known.state is State.ONGOING
    cluster.runtime.advance(LIMITS.abort_interval_ms)
    refused, *_ = cluster.ids
    refused.fail(BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    cluster.runtime.advance(LIMITS.abort_interval_ms)
    cluster.ids[-1].complete(FRESH)
    assert cluster.sent == both(cluster, EPOCHS_EXHAUSTED_FROM + 1, commit=False)
    cluster.answer()
    assert (cluster.known.producer_id, cluster.known.epoch) == (FRESH, 0)


def test_a_timeout_does_not_abort_what_is_being_committed(cluster: Cluster) -> None:
    cluster.begin()
    cluster.log.hold = True
    end_answer = cluster.end()
    cluster.runtime.advance(TIMEOUT_MS + LIMITS.abort_interval_ms)
    assert (cluster.known.state, cluster.sent, end_answer.done) == (State.PREPARE_COMMIT, [], False)
    cluster.log.commit()
    assert end_answer.result().error_code == 0
    cluster.runtime.advance(TIMEOUT_MS)
    assert cluster.sent == both(cluster, cluster.known.epoch)


def test_a_fence_is_continued_by_the_next_coordinator(cluster: Cluster) -> None:
    """A second producer asked for the id. The first one's transaction is aborted whichever coordinator it meets."""
    cluster.begin()
    init = InitProducer(transactional_id=ID, timeout_ms=TIMEOUT_MS)
    assert cluster.submit(init).result().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    cluster.fail_over()
    assert code_of(cluster.submit(init)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert cluster.sent == both(cluster, 1, commit=False)
    cluster.answer()
    assert cluster.submit(init).result().producer_epoch == 2


def test_a_shard_that_is_dropped_and_reloaded_in_its_epoch(cluster: Cluster) -> None:
    """The record of the end was lost by the disk. Markers that are under way count, and all is completed once."""
    cluster.begin()
    cluster.end().result()
    cluster.answer([cluster.requests.pop(0)])
    cluster.log.hold = True
    cluster.answer([cluster.requests.pop(0)])
    cluster.log.items.pop()
    cluster.log.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    cluster.log.hold = False
    cluster.runtime.advance(RELOAD_DELAY_MS)
    assert cluster.known.state is State.PREPARE_COMMIT
    assert cluster.sent == both(cluster, cluster.known.epoch)
    cluster.answer()
    assert (cluster.known.state, cluster.sender.waiting) == (State.COMPLETE_COMMIT, 0)


def test_an_expired_id_is_forgotten_by_the_next_coordinator_too() -> None:
    cluster = Cluster(0)
    cluster.runtime.advance(LIMITS.expiration_ms + LIMITS.forget_interval_ms)
    assert cluster.log.items[-1].value is None
    cluster.fail_over()
    host = cluster.coordinator.host_of(ID)
    assert host is not None
    assert cast("TransactionShard", host.shard).find(ID) is None
