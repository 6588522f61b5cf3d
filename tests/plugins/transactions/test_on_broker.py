"""Transactions through a broker on virtual time: what Produce, Fetch and a restart make of them."""

from __future__ import annotations

from typing import Any

import pytest

from blumfeld.spi.completion import Completion
from blumfeld.spi.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from blumfeld.wire.batches.control_records import ControlType, control_type_of
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import records
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from blumfeld.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from blumfeld.wire.messages.end_txn import EndTxnRequest
from blumfeld.wire.messages.find_coordinator import FindCoordinatorRequest
from blumfeld.wire.messages.init_producer_id import InitProducerIdRequest
from blumfeld.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from blumfeld.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from blumfeld_groups_classic import ClassicGroupProtocol
from blumfeld_transactions.plugin import Transactions
from tests.broker.batches import batch, fetch, produce
from tests.broker.harness import BrokerHarness
from tests.broker.plain_storage import PlainStorage

ID = "tx"
NONE = ErrorCode.NONE
TOPICS = (("t", 2), (OFFSETS_TOPIC, 1), (TRANSACTIONS_TOPIC, 1))
"""The coordinator's comes last: when it is loaded, the image has all topics, as in a cluster that starts."""


class Transacting(BrokerHarness):
    """A broker with the plug-in, its topic of one partition, and a topic ``t`` of two."""

    def __init__(
        self,
        storage: PlainStorage | None = None,
        topics: bool = True,
        authorizer: Any = None,
        **config: Any,
    ) -> None:
        super().__init__(
            {key.replace("_", "."): value for key, value in config.items()},
            group_protocols=[ClassicGroupProtocol()],
            make_transactions=Transactions,
            storage=storage,
            authorizer=authorizer,
        )
        if topics:
            for name, count in TOPICS:
                self.create_topic(name, count)
        self.producer_id = self.epoch = -1
        self.sequence = [0, 0]

    def init(self, version: int = 4, **options: Any) -> ErrorCode:
        request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000, **options)
        response = self.ask(request, version)
        if not response.error_code:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self.sequence = [0, 0]
        return ErrorCode(response.error_code)

    def add(self, *indexes: int, version: int = 3, topic: str = "t") -> list[ErrorCode]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))],
        )
        (topic_result,) = self.ask(request, version).results_by_topic_v3_and_below
        return [
            ErrorCode(partition_result.partition_error_code)
            for partition_result in topic_result.results_by_partition
        ]

    def request(self, index: int = 0, transactional_id: str | None = ID) -> Any:
        data = batch(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence[index],
            transactional=True,
        )
        return produce(data, partition=index, transactional_id=transactional_id)

    def produce(self, index: int = 0, version: int = 11, transactional_id: str | None = ID) -> ErrorCode:
        response = self.ask(self.request(index, transactional_id), version)
        (answer,) = response.responses[0].partition_responses
        if not answer.error_code:
            self.sequence[index] += 1
        return ErrorCode(answer.error_code)

    def end(self, commit: bool, version: int = 4) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=ID, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commit
        )
        response = self.ask(request, version)
        if version >= 5 and not response.error_code:
            self.producer_id, self.epoch, self.sequence = (
                response.producer_id,
                response.producer_epoch,
                [0, 0],
            )
        return ErrorCode(response.error_code)

    def commit_offset(self, version: int = 3) -> ErrorCode:
        request = TxnOffsetCommitRequest(
            transactional_id=ID,
            group_id="g",
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="t", partitions=[TxnOffsetCommitRequestPartition(committed_offset=7)]
                )
            ],
        )
        return ErrorCode(self.ask(request, version).topics[0].partitions[0].error_code)

    def kinds(self, index: int = 0) -> str:
        """The batches of a partition: d a data batch, c a commit marker, a an abort marker."""

        def kind(log_batch: RecordBatch) -> str:
            if not log_batch.is_control:
                return "d"
            (marker,) = records(log_batch)
            return "c" if control_type_of(marker.key) is ControlType.COMMIT else "a"

        return "".join(map(kind, self.log_of("t", index).batches(0)))

    def stable(self, index: int = 0) -> int:
        response = self.ask(fetch(partitions=(index,), isolation_level=1), 11)
        return int(response.responses[0].partitions[0].last_stable_offset)

    def aborted(self, index: int = 0) -> list[tuple[int, int]]:
        response = self.ask(fetch(partitions=(index,), isolation_level=1), 11)
        transactions = response.responses[0].partitions[0].aborted_transactions
        return [(transaction.producer_id, transaction.first_offset) for transaction in transactions]

    def latest(self, isolation_level: int) -> int:
        partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
        topic = ListOffsetsTopic(name="t", partitions=[partition])
        response = self.ask(
            ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=[topic]), 7
        )
        return int(response.topics[0].partitions[0].offset)


@pytest.fixture
def broker() -> Transacting:
    started = Transacting()
    assert started.init() == NONE
    return started


def test_a_transaction_is_seen_once_it_is_committed(broker: Transacting) -> None:
    assert broker.add(0, 1) == [NONE, NONE]
    assert [broker.produce(0), broker.produce(1), broker.produce(0)] == [NONE] * 3
    assert (broker.stable(), broker.latest(1), broker.latest(0)) == (0, 0, 2)
    assert broker.end(True) == NONE
    assert (broker.kinds(0), broker.kinds(1)) == ("ddc", "dc")
    assert (broker.stable(), broker.aborted(), broker.latest(1)) == (3, [], 3)


def test_an_aborted_transaction_is_named(broker: Transacting) -> None:
    assert [*broker.add(0), broker.produce(), broker.end(False)] == [NONE] * 3
    assert (broker.kinds(), broker.stable(), broker.aborted()) == ("da", 2, [(broker.producer_id, 0)])
    assert [*broker.add(0), broker.produce(), broker.end(True)] == [NONE] * 3
    assert (broker.kinds(), broker.aborted()) == ("dadc", [(broker.producer_id, 0)])


def test_the_next_producer_fences_the_one_before(broker: Transacting) -> None:
    assert [*broker.add(0), broker.produce()] == [NONE, NONE]
    old = broker.producer_id, broker.epoch
    assert broker.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    assert broker.kinds() == "da"
    assert broker.init() == NONE
    assert (broker.producer_id, broker.epoch) == (old[0], old[1] + 2)
    broker.epoch = old[1]
    assert broker.produce() == ErrorCode.INVALID_PRODUCER_EPOCH
    assert broker.add(0) == [ErrorCode.PRODUCER_FENCED]
    assert broker.add(0, version=1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert broker.end(True) == ErrorCode.PRODUCER_FENCED
    assert broker.end(True, version=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    given = {"producer_id": old[0], "producer_epoch": old[1]}
    assert broker.init(4, **given) == ErrorCode.PRODUCER_FENCED
    assert broker.init(3, **given) == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(
    ("version", "code"), [(11, ErrorCode.TRANSACTION_ABORTABLE), (10, ErrorCode.INVALID_TXN_STATE)]
)
def test_a_partition_that_is_not_in_the_transaction_takes_no_batch(
    broker: Transacting, version: int, code: ErrorCode
) -> None:
    """It would hold back read_committed consumers forever: no marker would come (KIP-890)."""
    assert broker.add(1) == [NONE]
    assert broker.produce(0, version) == code
    assert (broker.produce(1, version), broker.kinds(0)) == (NONE, "")
    assert broker.end(True) == NONE
    assert broker.produce(1, version) == code  # a late batch, after the end


def test_without_a_transactional_id_a_transactional_batch_is_refused(broker: Transacting) -> None:
    assert broker.add(0) == [NONE]
    assert broker.produce(transactional_id=None) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_plain_batch_in_an_open_transaction_is_refused(broker: Transacting) -> None:
    assert [*broker.add(0), broker.produce()] == [NONE, NONE]
    data = batch(producer_id=broker.producer_id, producer_epoch=broker.epoch, base_sequence=1)
    (answer,) = broker.ask(produce(data), 11).responses[0].partition_responses
    assert answer.error_code == ErrorCode.INVALID_TXN_STATE


def test_offsets_are_committed_only_in_the_transaction(broker: Transacting) -> None:
    request = AddOffsetsToTxnRequest(
        transactional_id=ID, producer_id=broker.producer_id, producer_epoch=broker.epoch, group_id="g"
    )
    assert broker.add(0) == [NONE]
    assert broker.commit_offset() == ErrorCode.INVALID_TXN_STATE
    assert broker.commit_offset(4) == ErrorCode.TRANSACTION_ABORTABLE
    assert broker.ask(request, 3).error_code == NONE
    assert (broker.commit_offset(), broker.end(True)) == (NONE, NONE)
    assert [log_batch.is_control for log_batch in broker.log_of(OFFSETS_TOPIC).batches(0)] == [False, True]


def gauges(broker: Transacting) -> dict[str, float]:
    names = ("transactions_open", "transactions_oldest_open_seconds", "transaction_markers_waiting")
    read = {gauge.name.removeprefix("blumfeld_"): gauge.read for gauge in broker.broker.gauges()}
    return {name: read[name]() for name in names}


def test_gauges_say_what_is_open_and_what_waits(broker: Transacting) -> None:
    assert list(gauges(broker).values()) == [0, 0, 0]
    assert broker.add(0, 1) == [NONE, NONE]
    broker.runtime.advance(5_000)
    assert list(gauges(broker).values()) == [1, 5, 0]
    broker.broker._write_markers = lambda request: Completion()  # type: ignore[method-assign]
    assert broker.end(True) == NONE
    assert list(gauges(broker).values()) == [0, 0, 2]


def test_a_producer_id_serves_idempotent_and_transactional_producers(broker: Transacting) -> None:
    plain = broker.ask(InitProducerIdRequest(transactional_id=None), 4).producer_id
    other = broker.ask(InitProducerIdRequest(transactional_id="other", transaction_timeout_ms=1), 4)
    assert len({broker.producer_id, plain, other.producer_id}) == 3


def test_the_coordinator_is_found_and_its_topic_made() -> None:
    broker = Transacting(topics=False)
    request = FindCoordinatorRequest(key=ID, key_type=1)
    assert broker.ask(request, 2).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.runtime.run_turn()
    answer = broker.ask(request, 2)
    assert (answer.error_code, answer.node_id) == (NONE, 1)
    assert len(broker.metadata.image.topics[TRANSACTIONS_TOPIC].partitions) == 50


def test_another_broker_may_verify_several_transactions_at_once(broker: Transacting) -> None:
    assert broker.add(0) == [NONE]
    topics = [AddPartitionsToTxnTopic(name="t", partitions=[0, 1])]

    def one(transactional_id: str) -> AddPartitionsToTxnTransaction:
        return AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=broker.producer_id,
            producer_epoch=broker.epoch,
            verify_only=True,
            topics=topics,
        )

    request = AddPartitionsToTxnRequest(transactions=[one(ID), one("nobody")])
    known, unknown = (
        [ErrorCode(p.partition_error_code) for p in result.topic_results[0].results_by_partition]
        for result in broker.ask(request, 5).results_by_transaction
    )
    assert known == [NONE, ErrorCode.TRANSACTION_ABORTABLE]
    assert unknown == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2


@pytest.mark.parametrize("verify_only", [True, False])
def test_a_partition_that_the_coordinator_does_not_know_yet_is_not_added(
    broker: Transacting, verify_only: bool
) -> None:
    """Its image may lag behind the leader's. It would take the partition for deleted, and write no marker in it."""
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=ID,
        producer_id=broker.producer_id,
        producer_epoch=broker.epoch,
        verify_only=verify_only,
        topics=[AddPartitionsToTxnTopic(name="t", partitions=[0, 9])],
    )
    (result,) = broker.ask(AddPartitionsToTxnRequest(transactions=[transaction]), 5).results_by_transaction
    codes = [ErrorCode(p.partition_error_code) for p in result.topic_results[0].results_by_partition]
    assert codes == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert broker.end(True) == ErrorCode.INVALID_TXN_STATE


def test_a_restart_continues_where_the_log_ends(broker: Transacting) -> None:
    """An open transaction stays open, and its producer may go on."""
    assert [*broker.add(0), broker.produce()] == [NONE, NONE]
    broker.stop()
    later = Transacting(storage=broker.storage, topics=False)
    for name, count in TOPICS:
        later.create_topic(name, count)
    later.runtime.run_turn()
    later.producer_id, later.epoch, later.sequence = broker.producer_id, broker.epoch, broker.sequence
    assert later.stable() == 0
    assert [later.produce(), later.end(True)] == [NONE, NONE]
    assert (later.kinds(), later.stable()) == ("ddc", 3)


def test_own_epochs_need_no_added_partitions(broker: Transacting) -> None:
    """Transactions of version 2 (KIP-890): Produce v12 adds its partition, and EndTxn v5 gives the next epoch."""
    epoch = broker.epoch
    assert [broker.produce(0, 12), broker.produce(1, 12), broker.commit_offset(5)] == [NONE] * 3
    assert broker.end(True, 5) == NONE
    assert (broker.epoch, broker.kinds(0), broker.kinds(1)) == (epoch + 1, "dc", "dc")
    assert [broker.produce(0, 12), broker.end(False, 5)] == [NONE, NONE]
    assert (broker.epoch, broker.kinds(0), broker.aborted()) == (epoch + 2, "dcda", [(broker.producer_id, 2)])
    broker.sequence[0] = 3
    assert broker.produce(0, 12) == ErrorCode.NOT_LEADER_OR_FOLLOWER, "a first batch may come again"
    assert broker.produce(0, 12) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_offsets_can_be_added_before_the_groups_topic_is_there() -> None:
    """A client of the first generation sends AddOffsetsToTxn before it looks for the group's coordinator. With a group
    that nobody has looked for, only this request can make the topic come."""
    broker = Transacting(topics=False)
    for name in ("t", TRANSACTIONS_TOPIC):
        broker.create_topic(name, 1)
    assert not broker.init()
    request = AddOffsetsToTxnRequest(
        transactional_id=ID, producer_id=broker.producer_id, producer_epoch=broker.epoch, group_id="new"
    )
    codes = []
    for _ in range(10):
        codes.append(ErrorCode(broker.ask(request, 3).error_code))
        broker.runtime.advance(1_000)
    assert codes[-1] == NONE, codes
