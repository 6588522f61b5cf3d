"""Markers that end transactions (WriteTxnMarkers), and who writes to a partition (DescribeProducers)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from blumfeld.broker.handlers.broker import api_27_write_txn_markers, api_61_describe_producers
from blumfeld.spi.cluster import TopicImage
from blumfeld.spi.internal_topics import TRANSACTIONS_TOPIC
from blumfeld.spi.steps import CHUNK_ELEMENTS
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from blumfeld.wire.messages.describe_producers import (
    DescribeProducersRequest,
    TopicRequest,
)
from blumfeld.wire.messages.find_coordinator import FindCoordinatorRequest
from blumfeld.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from blumfeld.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from blumfeld.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from blumfeld.wire.schema import Message
from blumfeld_groups_classic import ClassicGroupProtocol
from tests.broker.batches import batch
from tests.broker.fake_transactions import FakeTransactions
from tests.broker.handlers.marker_steps import BY_KAFKA, OFFSETS_TOPIC, answers, marker, txn_commit
from tests.broker.harness import BrokerHarness, Permissions, noting, partition_image
from tests.broker.plain_storage import PlainLog, PlainStorage
from tests.coordinator.groups.test_offsets_traces_oracle import SETTINGS, Live
from tests.kafka_peer import kafka_on, peer_script

PRODUCER = 7


class Transacting(BrokerHarness):
    """A broker with groups and transactions, their topic of one partition, and a topic ``t`` of four."""

    def __init__(self, storage: PlainStorage | None = None, authorizer: Any = None) -> None:
        super().__init__(
            group_protocols=[ClassicGroupProtocol()],
            transactions=FakeTransactions(),
            storage=storage,
            authorizer=authorizer,
        )
        self.create_topic(OFFSETS_TOPIC)
        self.create_topic("t", 4)

    def coordinator_epoch(self, epoch: int) -> None:
        """Another node coordinates transactions, in this epoch."""
        partition = partition_image(replicas=(2,), leader=2, epoch=epoch)
        self.metadata.image.topics[TRANSACTIONS_TOPIC] = TopicImage(
            name=TRANSACTIONS_TOPIC, topic_id=b"transactions----", partitions={0: partition}
        )

    @property
    def offsets_log(self) -> PlainLog:
        return self.log_of(OFFSETS_TOPIC)

    def commit(self, offset: int, epoch: int = 0) -> ErrorCode:
        """TxnOffsetCommit of ``t-0``."""
        response = self.ask(txn_request(offset, epoch), 5)
        return ErrorCode(response.topics[0].partitions[0].error_code)

    def fetch(self) -> int | ErrorCode:
        """What is committed for ``t-0``, if that is stable."""
        topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        response = self.ask(OffsetFetchRequest(group_id="g", topics=topics, require_stable=True), 7)
        (partition,) = response.topics[0].partitions
        return ErrorCode(partition.error_code) if partition.error_code else int(partition.committed_offset)


def txn_request(offset: int, epoch: int = 0) -> TxnOffsetCommitRequest:
    """The producer's commit for ``t-0`` in group ``g``."""
    return txn_commit(PRODUCER, epoch, offset=offset)


def end(commit: bool, *places: tuple[str, int]) -> WriteTxnMarkersRequest:
    """The end of the producer's transaction, in the groups' partition unless told."""
    return WriteTxnMarkersRequest(markers=[marker(PRODUCER, *places, commit=commit)])


def codes(response: Any) -> list[ErrorCode]:
    """The code of each partition."""
    return [
        ErrorCode(p.error_code)
        for marker in response.markers
        for topic in marker.topics
        for p in topic.partitions
    ]


def test_markers_and_producers_are_answered_as_kafka_answers() -> None:
    """Epochs of producers and coordinators, both versions of transactions, retries, and what is not here."""
    broker = Transacting()
    broker.coordinator_epoch(5)
    assert answers(broker.ask) == BY_KAFKA


def test_a_marker_of_no_coordinator_that_the_metadata_has_is_refused() -> None:
    """Behind it a real coordinator's marker would be refused for ever, and ``read_committed`` stand still. The image
    may be behind that of the coordinator, which asks again.
    """
    broker = Transacting()
    request = end(True, ("t", 0))
    (marker,) = request.markers
    for epoch, known, code in [
        (2**31 - 1, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (1, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (0, 0, ErrorCode.NONE),
        (1, 1, ErrorCode.NONE),
        (2, 1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ]:
        broker.coordinator_epoch(known)
        marker.coordinator_epoch = epoch
        assert codes(broker.ask(request, 1)) == [code]
    assert broker.log_of("t").written_end_offset == 2
    warnings = [event for level, event, _ in broker.log.events if level == "warning"]
    assert warnings == ["a transaction's marker has a later epoch than any coordinator of the metadata"]


def test_an_operator_ends_a_transaction_with_the_epoch_that_the_partition_knows() -> None:
    """The topic of the transactions is gone, and no coordinator is in an epoch as late."""
    broker = Transacting()
    broker.coordinator_epoch(7)
    request = end(True, ("t", 0))
    request.markers[0].coordinator_epoch = 7
    assert codes(broker.ask(request, 1)) == [ErrorCode.NONE]
    del broker.metadata.image.topics[TRANSACTIONS_TOPIC]
    request.markers[0].coordinator_epoch = 8
    assert codes(broker.ask(request, 1)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    request.markers[0].coordinator_epoch = 7
    assert codes(broker.ask(request, 1)) == [ErrorCode.NONE]


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Live]:
    """Kafka with the topic and the groups' partition."""
    with kafka_on(peer_script(), tmp_path, *SETTINGS) as address:
        live = Live(address)
        topics = [CreatableTopic(name="t", num_partitions=4, replication_factor=1)]
        live.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 5)
        live.ask(FindCoordinatorRequest(key="warm-up"), 3)
        live.wait_for_coordinator()
        yield live


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_kafka_answers_them_so(kafka: Live) -> None:
    """What is expected above is what Apache Kafka 4.3.1 says."""
    assert answers(kafka.ask) == BY_KAFKA


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_of_a_transaction_count_from_its_marker_on(commit: bool) -> None:
    """The commit is this producer's transactional batch; LSO, index of aborted transactions, and after a restart."""
    storage = PlainStorage()
    broker = Transacting(storage)
    assert broker.commit(5) is ErrorCode.NONE
    (batch,) = broker.offsets_log.batches(0)
    assert (batch.producer_id, batch.is_transactional, batch.base_sequence) == (PRODUCER, True, 0)
    assert broker.hosted(OFFSETS_TOPIC).state.producers.first_unstable_offset == 0
    assert broker.fetch() is ErrorCode.UNSTABLE_OFFSET_COMMIT
    broker.stop()
    broker = Transacting(storage)
    assert broker.fetch() is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert codes(broker.ask(end(commit), 1)) == [ErrorCode.NONE]
    state = broker.hosted(OFFSETS_TOPIC).state
    assert state.producers.first_unstable_offset is None
    aborted = [(entry.producer_id, entry.first_offset) for entry in state.aborted.entries]
    assert aborted == ([] if commit else [(PRODUCER, 0)])
    assert broker.fetch() == (5 if commit else -1)
    broker.stop()
    assert Transacting(storage).fetch() == (5 if commit else -1)


def test_a_marker_is_answered_when_it_is_committed() -> None:
    """And so is who read what it committed."""
    broker = Transacting()
    broker.commit(5)
    broker.offsets_log.hold_writes = True
    ending = broker.send(end(True), 1)
    reading = broker.send(OffsetFetchRequest(group_id="g", topics=None), 7)
    assert not ending.settled
    assert not reading.settled
    broker.offsets_log.let_write()
    broker.runtime.run_turn()
    assert codes(broker.response(ending, end(True), 1)) == [ErrorCode.NONE]
    assert reading.settled
    assert broker.fetch() == 5


def test_a_marker_that_is_not_written_ends_nothing() -> None:
    """KAFKA_STORAGE_ERROR; the groups find the transaction open when they are rebuilt from the log."""
    broker = Transacting()
    broker.commit(5)
    broker.offsets_log.fail_next_write = True
    assert codes(broker.ask(end(True), 1)) == [ErrorCode.KAFKA_STORAGE_ERROR]
    broker.runtime.advance(1_000)
    assert broker.fetch() is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert codes(broker.ask(end(True), 1)) == [ErrorCode.NONE]
    assert broker.fetch() == 5


def test_each_partition_of_a_marker_is_answered_on_its_own() -> None:
    """Those that are led here get it, others say why not."""
    broker = Transacting()
    request = end(True, ("t", 3), ("nowhere", 0), ("t", 4), ("t", 0))
    none, unknown = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(broker.ask(request, 1)) == [none, unknown, unknown, none]
    assert [broker.log_of("t", index).written_end_offset for index in range(4)] == [1, 0, 0, 1]
    assert broker.ask(WriteTxnMarkersRequest(), 1).markers == []


def test_markers_for_the_same_partitions_are_each_checked_and_answered() -> None:
    """Partition by partition, but the second marker of a producer is checked behind the first one."""
    broker = Transacting()
    places = ("t", 0), ("t", 9), ("t", 1)
    epochs = ((1, 5), (2, -1), (1, 4), (3, 0))
    markers = [marker(producer, *places, producer_epoch=epoch) for producer, epoch in epochs]
    none, unknown = ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR
    nowhere, fenced = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH
    answer = broker.ask(WriteTxnMarkersRequest(markers=markers), 1)
    assert [one.producer_id for one in answer.markers] == [1, 2, 1, 3]
    assert [codes(WriteTxnMarkersResponse(markers=[one])) for one in answer.markers] == [
        [none, nowhere, none],
        [unknown, nowhere, unknown],
        [fenced, nowhere, fenced],
        [none, nowhere, none],
    ]
    for index in (0, 1):
        batches = list(broker.log_of("t", index).batches(0))
        written = [(batch.base_offset, batch.producer_id, batch.producer_epoch) for batch in batches]
        assert written == [(0, 1, 5), (1, 3, 0)]


def test_a_write_that_fails_fails_all_markers_of_its_partition() -> None:
    broker = Transacting()
    broker.log_of("t", 1).fail_next_write = True
    markers = [marker(producer, ("t", 0), ("t", 1)) for producer in (1, 2)]
    answer = broker.ask(WriteTxnMarkersRequest(markers=markers), 1)
    assert codes(answer) == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR] * 2


def test_a_fenced_producer_costs_the_groups_nothing() -> None:
    """INVALID_PRODUCER_EPOCH is its own answer; nothing is placed, and others go on."""
    broker = Transacting()
    broker.commit(5, epoch=2)
    assert broker.commit(6, epoch=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert broker.offsets_log.placed_end_offset == 1
    assert broker.commit(7, epoch=2) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("allowed", "code"),
    [
        ((), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (("ClusterAction",), ErrorCode.NONE),
        (("Alter",), ErrorCode.NONE),
    ],
)
def test_brokers_and_operators_may_write_markers(allowed: tuple[str, ...], code: ErrorCode) -> None:
    """ClusterAction, or Alter on the cluster."""
    permissions = Permissions(lambda operation, kind, _: kind != "Cluster" or operation in allowed)
    broker = Transacting(authorizer=permissions)
    assert codes(broker.ask(end(True), 1)) == [code]
    assert broker.offsets_log.placed_end_offset == (code is ErrorCode.NONE)


def test_a_refusal_of_many_markers_is_told_for_each_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    def size(request: WriteTxnMarkersRequest, *_: object) -> int:
        return sum(len(topic.partition_indexes) for marker in request.markers for topic in marker.topics)

    parts = noting(monkeypatch, api_27_write_txn_markers, "failed", size)
    request = end(True)
    request.markers[0].topics[0].partition_indexes = list(range(5_000))
    answer = Transacting(authorizer=Permissions()).ask(request, 1)
    assert codes(answer) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 5_000
    assert max(parts) <= CHUNK_ELEMENTS


def describe(broker: BrokerHarness, *topics: str) -> list[tuple[ErrorCode, int]]:
    """(code, number of producers) of partition 0 of each."""
    request: Message = DescribeProducersRequest(
        topics=[TopicRequest(name=topic, partition_indexes=[0]) for topic in topics]
    )
    return [
        (ErrorCode(p.error_code), len(p.active_producers))
        for topic in broker.ask(request, 0).topics
        for p in topic.partitions
    ]


def test_who_writes_to_a_partition_is_told() -> None:
    """To who may read it; what isn't here, or can't be, says so."""
    broker = Transacting()
    broker.commit(5)
    assert describe(broker, OFFSETS_TOPIC, "t", "nowhere", "not a topic") == [
        (ErrorCode.NONE, 1),
        (ErrorCode.NONE, 0),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, 0),
    ]
    forbidding = Transacting(
        authorizer=Permissions(lambda operation, kind, _: (operation, kind) != ("Read", "Topic"))
    )
    assert describe(forbidding, "t") == [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0)]


def test_a_partition_that_is_asked_for_twice_is_refused() -> None:
    """With two thousand producers each repetition adds 74 kB to the answer: 100 kB of request would be gigabytes."""
    broker = BrokerHarness(partitions=2)
    for indexes, code in (
        ([0, 1], ErrorCode.NONE),
        ([0, 0], ErrorCode.INVALID_REQUEST),
        ([0] * 900, ErrorCode.INVALID_REQUEST),
    ):
        request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=list(indexes))])
        (topic,) = broker.ask(request, 0).topics
        assert [(one.partition_index, one.error_code) for one in topic.partitions] == [
            (index, code) for index in indexes
        ]


def test_many_producers_are_described_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = BrokerHarness(partitions=2)
    for index in (0, 1):
        for producer_id in range(3):
            broker.produced(
                batch(producer_id=producer_id, producer_epoch=0, base_sequence=0), partition=index
            )
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0, 1])])
    at_once = broker.ask(request, 0)
    monkeypatch.setattr(api_61_describe_producers, "PRODUCERS_AT_ONCE", 5)
    parts = noting(
        monkeypatch,
        api_61_describe_producers,
        "failed",
        lambda request, *_: sum(len(topic.partition_indexes) for topic in request.topics),
    )
    assert broker.ask(request, 0) == at_once
    assert parts == [1, 1]
