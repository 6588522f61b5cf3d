"""Fetch: what is answered at once, what waits, limits, sessions, and every error of a partition."""

from __future__ import annotations

from typing import Any, cast

import pytest

from blumfeld.spi.compaction import AbortedTransaction
from blumfeld.spi.completion import Completion
from blumfeld.spi.storage import LogRead
from blumfeld.wire.batches.record_batch import RecordBatch, split_batches
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from blumfeld_kit.transport_contract.kit import CountedRegion
from tests.broker.batches import batch, fetch, produce
from tests.broker.harness import BrokerHarness, Succeeding

VERSIONS = range(4, 19)


@pytest.fixture
def broker() -> BrokerHarness:
    return BrokerHarness(partitions=2)


def fill(broker: BrokerHarness, count: int = 1, **where: Any) -> None:
    for _ in range(count):
        broker.ask(produce(batch(), **where), 9)


def data_of(answer: FetchResponse) -> PartitionData:
    topic: FetchableTopicResponse = answer.responses[0]
    return topic.partitions[0]


def answered(broker: BrokerHarness, request: FetchRequest, version: int = 12) -> PartitionData:
    return data_of(broker.ask(request, version))


def offsets(data: PartitionData) -> list[int]:
    assert isinstance(data.records, memoryview)
    return [b.base_offset for b in split_batches(data.records, allow_partial=True)]


def code(broker: BrokerHarness, request: FetchRequest, version: int = 12) -> ErrorCode:
    return ErrorCode(answered(broker, request, version).error_code)


def fetch_with(**values: Any) -> FetchRequest:
    return FetchRequest(
        min_bytes=1,
        topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition_max_bytes=1 << 20, **values)])],
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_batches_come_back_in_every_version(broker: BrokerHarness, version: int) -> None:
    fill(broker, 3)
    data = answered(broker, fetch(1, topic_id=broker.metadata.image.topics["t"].topic_id), version)
    assert offsets(data) == [1, 2]
    assert (data.high_watermark, data.last_stable_offset, data.error_code) == (3, 3, 0)
    assert data.log_start_offset == (0 if version >= 5 else -1)
    assert data.aborted_transactions is None
    assert data.preferred_read_replica == -1


def test_an_offset_inside_a_batch_gives_the_whole_batch(broker: BrokerHarness) -> None:
    broker.ask(produce(batch(b"a", b"b", b"c")), 9)
    assert offsets(answered(broker, fetch(2))) == [0]


def test_nothing_new_is_empty_not_null_and_no_error(broker: BrokerHarness) -> None:
    fill(broker)
    data = answered(broker, fetch(1))
    assert (data.error_code, bytes(data.records)) == (0, b"")  # type: ignore[arg-type]


def test_limits_are_soft_for_the_first_batch_only(broker: BrokerHarness) -> None:
    fill(broker, 3)
    fill(broker, 2, partition=1)
    size = len(batch())
    assert offsets(answered(broker, fetch(0, partition_bytes_max=1))) == [0]
    assert offsets(answered(broker, fetch(0, partition_bytes_max=2 * size))) == [0, 1]
    answer = broker.ask(fetch(0, partitions=(0, 1), max_bytes=1), 12)
    assert [offsets(p) for p in answer.responses[0].partitions] == [[0], []]
    answer = broker.ask(fetch(0, partitions=(0, 1), max_bytes=4 * size), 12)
    assert [offsets(p) for p in answer.responses[0].partitions] == [[0, 1, 2], [0]]


def test_the_brokers_own_limit_counts_too() -> None:
    broker = BrokerHarness({"fetch.max.bytes": 1024}, partitions=1)
    for _ in range(3):
        broker.ask(produce(batch(bytes(500))), 9)
    assert offsets(answered(broker, fetch(0))) == [0]


# Waiting


def test_a_fetch_waits_for_data_and_is_answered_in_the_turn_that_brings_it(broker: BrokerHarness) -> None:
    request = fetch(0, max_wait_ms=500)
    waiting = broker.send(request, 12)
    broker.runtime.advance(100)
    assert not waiting.settled
    broker.begin(broker.frame(produce(batch()), 9))
    broker.runtime.run_turn()
    assert offsets(data_of(broker.response(waiting, request, 12))) == [0]
    assert broker.broker.parking.waiting == 0


def test_a_fetch_without_time_to_wait_or_partitions_is_answered_at_once(broker: BrokerHarness) -> None:
    assert broker.send(fetch(0, min_bytes=10_000), 12).settled
    assert broker.ask(FetchRequest(max_wait_ms=500, min_bytes=1), 12).responses == []


def test_a_waiting_fetch_is_told_when_leadership_goes(broker: BrokerHarness) -> None:
    request = fetch(0, max_wait_ms=60_000)
    waiting = broker.send(request, 12)
    broker.change_partition(leader=-1, epoch=1)
    broker.runtime.run_turn()
    data = data_of(broker.response(waiting, request, 12))
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (-1, 1)


def test_consumers_see_nothing_above_the_high_watermark(broker: BrokerHarness) -> None:
    broker.change_partition(replicas=(1, 2))
    fill(broker)
    data = answered(broker, fetch(1))
    assert (data.error_code, data.high_watermark, offsets(data)) == (0, 0, [])
    assert offsets(answered(broker, fetch(0))) == []


def test_a_follower_reads_to_the_log_end_and_moves_the_high_watermark(broker: BrokerHarness) -> None:
    broker.change_partition(replicas=(1, 2))
    fill(broker)
    consumer = fetch(0, max_wait_ms=60_000)
    waiting = broker.send(consumer, 12)
    topic_id = broker.metadata.image.topics["t"].topic_id
    follower = fetch(0, replica_state=ReplicaState(replica_id=2, replica_epoch=5), topic_id=topic_id)
    assert offsets(answered(broker, follower, 17)) == [0]
    assert not waiting.settled
    assert answered(broker, fetch(1, replica_id=2)).high_watermark == 1
    assert offsets(data_of(broker.response(waiting, consumer, 12))) == [0]
    stranger = fetch(1, replica_id=7)
    assert code(broker, stranger) == ErrorCode.NOT_LEADER_OR_FOLLOWER


# Errors


def test_offsets_outside_of_the_log(broker: BrokerHarness) -> None:
    fill(broker, 3)
    assert code(broker, fetch(4)) == ErrorCode.OFFSET_OUT_OF_RANGE
    broker.hosted().advance_log_start(2)
    data = answered(broker, fetch(1))
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (data.high_watermark, data.last_stable_offset, data.log_start_offset) == (-1, -1, -1)


def test_unknown_places(broker: BrokerHarness) -> None:
    """Told at once, whatever the time to wait is."""
    assert code(broker, fetch(0, topic="no", max_wait_ms=500)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(broker, fetch(0, partitions=(7,))) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(broker, fetch(0, topic_id=b"?" * 16), 13) == ErrorCode.UNKNOWN_TOPIC_ID


def test_leader_epochs_are_compared(broker: BrokerHarness) -> None:
    broker.change_partition(epoch=3)
    assert code(broker, fetch_with(current_leader_epoch=2)) == ErrorCode.FENCED_LEADER_EPOCH
    assert code(broker, fetch_with(current_leader_epoch=4)) == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert code(broker, fetch_with(current_leader_epoch=3)) == ErrorCode.NONE


def test_histories_that_part_are_told(broker: BrokerHarness) -> None:
    fill(broker, 2)
    broker.change_partition(epoch=3)
    fill(broker, 2)
    data = answered(broker, fetch_with(fetch_offset=3, last_fetched_epoch=0))
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 2)
    assert offsets(data) == []
    data = answered(broker, fetch_with(fetch_offset=3, last_fetched_epoch=2))
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 2)
    assert offsets(answered(broker, fetch_with(fetch_offset=2, last_fetched_epoch=0))) == [2, 3]
    assert code(broker, fetch_with(fetch_offset=3, last_fetched_epoch=9)) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_offline_log_is_told_in_the_words_of_the_version(broker: BrokerHarness) -> None:
    broker.hosted().fail(OSError("gone"))
    assert code(broker, fetch(0), 6) == ErrorCode.KAFKA_STORAGE_ERROR
    assert code(broker, fetch(0), 5) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_zstd_topic_is_read_by_old_versions_too(broker: BrokerHarness) -> None:
    """Kafka 4 doesn't look any more; before it was UNSUPPORTED_COMPRESSION_TYPE below version 10."""
    broker.create_topic("packed", compression_type="zstd")
    fill(broker, topic="packed")
    assert offsets(answered(broker, fetch(0, topic="packed"), 4)) == [0]


def test_a_cold_read_is_waited_for_and_may_fail(broker: BrokerHarness) -> None:
    fill(broker)
    log = broker.log_of("t")
    log.cold = []
    request = fetch(0)
    waiting = [broker.send(request, 12) for _ in range(2)]
    assert not any(exchange.settled for exchange in waiting)
    log.cold[0].complete(LogRead([bytes(next(log.batches(0)).data)], len(batch()), 1))
    log.cold[1].fail(OSError("far away"))
    assert offsets(data_of(broker.response(waiting[0], request, 12))) == [0]
    assert data_of(broker.response(waiting[1], request, 12)).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_read_committed_is_told_of_aborted_transactions(broker: BrokerHarness) -> None:
    fill(broker, 3)
    broker.hosted().state.aborted.append(AbortedTransaction(77, 0, 1, 2))
    data = answered(broker, fetch(0, isolation_level=1))
    assert data.aborted_transactions is not None
    assert [(a.producer_id, a.first_offset) for a in data.aborted_transactions] == [(77, 0)]
    assert answered(broker, fetch(3, isolation_level=1)).aborted_transactions == []
    assert answered(broker, fetch(0)).aborted_transactions is None


def two_reads(broker: BrokerHarness) -> tuple[FetchRequest, list[Completion[LogRead]]]:
    """A committed reader's fetch of two partitions, whose second one waits for cold bytes. The first has an aborted
    transaction."""
    for partition in (0, 1):
        fill(broker, partition=partition)
    broker.hosted().state.aborted.append(AbortedTransaction(77, 0, 0, 1))
    cold = broker.log_of("t", 1).cold = []
    return fetch(0, partitions=(0, 1), isolation_level=1), cold


def aborted_in(data: PartitionData) -> list[tuple[int, int]]:
    return [(a.producer_id, a.first_offset) for a in data.aborted_transactions or ()]


def test_aborted_transactions_are_those_of_the_bytes_also_if_their_segment_is_dropped_meanwhile(
    broker: BrokerHarness,
) -> None:
    """While the answer waits for another partition. The bytes are sent all the same: the region keeps its file."""
    request, cold = two_reads(broker)
    waiting = broker.send(request, 12)
    broker.hosted().state.aborted.drop_below(1)
    cold[0].complete(LogRead([], 0, 0))
    first, second = broker.response(waiting, request, 12).responses[0].partitions
    assert (offsets(first), aborted_in(first)) == ([0], [(77, 0)])
    assert aborted_in(second) == []


@pytest.mark.parametrize("partitions", [(1,), (0, 1)], ids=["alone", "beside another"])
def test_a_cold_read_brings_the_aborted_transactions_of_bytes_that_lie_elsewhere(
    broker: BrokerHarness, partitions: tuple[int, ...]
) -> None:
    """Before those that the log's own index has when the bytes come."""
    _, cold = two_reads(broker)
    request = fetch(0, partitions=partitions, isolation_level=1)
    waiting = broker.send(request, 12)
    broker.hosted("t", 1).state.aborted.append(AbortedTransaction(79, 0, 1, 2))
    cold[0].complete(LogRead([bytes(batch())], len(batch()), 1, [AbortedTransaction(78, 0, 0, 1)]))
    *_, second = broker.response(waiting, request, 12).responses[0].partitions
    assert aborted_in(second) == [(78, 0), (79, 0)]


def test_read_committed_ends_before_an_open_transaction(broker: BrokerHarness) -> None:
    fill(broker)
    transactional = batch(producer_id=77, producer_epoch=0, base_sequence=0, transactional=True)
    broker.hosted().place(RecordBatch(memoryview(transactional)), 1, Succeeding())
    broker.runtime.run_turn()
    fill(broker)
    data = answered(broker, fetch(0, isolation_level=1))
    assert (offsets(data), data.high_watermark, data.last_stable_offset) == ([0], 3, 1)
    assert offsets(answered(broker, fetch(0))) == [0, 1, 2]


# Files


@pytest.fixture
def regions(broker: BrokerHarness, monkeypatch: pytest.MonkeyPatch) -> list[CountedRegion]:
    """What is read of topic t, partition 0, as file regions."""
    read, made = broker.log_of("t").read, []

    def as_regions(*where: Any) -> LogRead:
        whole = read(*where)
        assert isinstance(whole, LogRead)
        parts = [CountedRegion(bytes(part), -1, 0) for part in whole.parts if isinstance(part, bytes)]
        made.extend(parts)
        return LogRead(list(parts), whole.size_bytes, whole.end_offset)

    monkeypatch.setattr(broker.log_of("t"), "read", as_regions)
    return made


def test_a_try_that_is_not_enough_gives_its_files_back(
    broker: BrokerHarness, regions: list[CountedRegion]
) -> None:
    """A long poll may try many times: only what is answered stays open, until it is sent."""
    fill(broker)
    request = fetch(0, max_wait_ms=500, min_bytes=2 * len(batch()))
    waiting = broker.send(request, 12)
    assert regions
    assert [region.releases for region in regions] == [1] * len(regions)
    tried = len(regions)
    fill(broker)
    assert waiting.settled
    assert [region.releases for region in regions[tried:]] == [0, 0]
    assert offsets(data_of(broker.response(waiting, request, 12))) == [0, 1]
    assert [region.releases for region in regions] == [1] * len(regions)


# Sessions


class Client:
    """A consumer with a session."""

    def __init__(self, broker: BrokerHarness) -> None:
        self.broker = broker
        self.topic_id = broker.metadata.image.topics["t"].topic_id
        self.session_id = 0
        self.epoch = 0

    def fetch(
        self, *partitions: int, offset: int = 0, forget: int | None = None
    ) -> list[tuple[int, list[int]]]:
        """(partition, base offsets) of what is answered; the epoch goes on."""
        topics = fetch(offset, topic_id=self.topic_id, partitions=partitions).topics if partitions else []
        forgotten = [] if forget is None else [ForgottenTopic(topic_id=self.topic_id, partitions=[forget])]
        request = FetchRequest(
            session_id=self.session_id,
            session_epoch=self.epoch,
            min_bytes=1,
            topics=topics,
            forgotten_topics_data=forgotten,
        )
        answer = self.broker.ask(request, 15)
        assert answer.error_code == 0
        self.session_id = answer.session_id
        self.epoch += 1
        return [(p.partition_index, offsets(p)) for topic in answer.responses for p in topic.partitions]


def test_an_incremental_answer_holds_only_what_changed(broker: BrokerHarness) -> None:
    client = Client(broker)
    assert client.fetch(0, 1) == [(0, []), (1, [])]
    assert client.session_id > 0
    assert client.fetch() == []
    fill(broker, partition=1)
    assert client.fetch() == [(1, [0])]
    assert client.fetch(1, offset=1) == []


@pytest.mark.parametrize("slots", [0, 1, 2])
def test_there_are_as_many_sessions_as_slots(slots: int) -> None:
    """max.incremental.fetch.session.cache.slots; a client beyond it fetches without a session."""
    broker = BrokerHarness({"max.incremental.fetch.session.cache.slots": slots}, partitions=2)
    clients = [Client(broker) for _ in range(3)]
    for client in clients:
        client.fetch(0)
    assert [client.session_id > 0 for client in clients] == [nth < slots for nth in range(3)]


def test_who_gave_data_is_served_last_next_time(broker: BrokerHarness) -> None:
    fill(broker)
    fill(broker, partition=1)
    client = Client(broker)
    assert client.fetch(0, 1) == [(0, [0]), (1, [0])]
    client.fetch(0, 1, offset=1)
    fill(broker)
    assert client.fetch() == [(0, [1])]
    fill(broker, partition=1)
    assert client.fetch() == [(1, [1]), (0, [1])]


def test_a_forgotten_partition_is_read_no_more(broker: BrokerHarness) -> None:
    client = Client(broker)
    client.fetch(0, 1)
    fill(broker)
    assert client.fetch(forget=0) == []
    assert client.fetch(forget=1) == []
    assert client.session_id == 0


def test_a_fetch_that_waits_keeps_its_offset_when_its_session_goes_on(broker: BrokerHarness) -> None:
    """A client that took its connection for lost goes on with the session on another one. The first answer must not
    have the second request's records."""
    fill(broker, 3)
    client = Client(broker)
    client.fetch(0, 1)
    requests = [
        FetchRequest(
            session_id=client.session_id,
            session_epoch=epoch,
            min_bytes=1,
            max_wait_ms=60_000,
            topics=fetch(offset, topic_id=client.topic_id).topics,
        )
        for epoch, offset in ((1, 3), (2, 4))
    ]
    waiting = [broker.send_frame(broker.frame(request, 15), broker.connect()) for request in requests]
    # The second offset is beyond the end: an error, which is no reason to answer the first.
    assert [exchange.settled for exchange in waiting] == [False, True]
    fill(broker, 2)
    first = broker.response(waiting[0], requests[0], 15)
    assert offsets(data_of(first))[0] == 3


def test_a_late_answer_puts_no_forgotten_request_back_into_its_session(broker: BrokerHarness) -> None:
    client = Client(broker)
    client.fetch(0, 1)
    request = FetchRequest(session_id=client.session_id, session_epoch=1, min_bytes=1, max_wait_ms=60_000)
    waiting = broker.send_frame(broker.frame(request, 15), broker.connect())
    client.epoch = 2
    fill(broker, 1, partition=1)
    assert waiting.settled
    request.session_epoch = 2
    waiting = broker.send_frame(broker.frame(request, 15), broker.connect())
    client.epoch = 3
    assert client.fetch(1, offset=1) == []
    fill(broker, 1, partition=0)
    assert client.fetch() == [(0, [0])], "partition 1 is asked for from offset 1 on"


def test_an_error_is_told_each_time(broker: BrokerHarness) -> None:
    client = Client(broker)
    client.fetch(0)
    broker.hosted().fail(OSError("gone"))
    assert client.fetch() == [(0, [])]
    assert client.fetch() == [(0, [])]


def test_session_errors_are_at_the_top_of_an_empty_answer(broker: BrokerHarness) -> None:
    client = Client(broker)
    client.fetch(0)

    def error(session_id: int, epoch: int, version: int = 15) -> ErrorCode:
        answer = broker.ask(FetchRequest(session_id=session_id, session_epoch=epoch), version)
        assert answer.responses == []
        return ErrorCode(answer.error_code)

    assert error(client.session_id + 1, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert error(client.session_id, 9) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert error(client.session_id, 1, 12) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_stop_answers_who_waits(broker: BrokerHarness) -> None:
    waiting = broker.send(fetch(0, max_wait_ms=60_000), 12)
    broker.stop()
    assert waiting.settled


def test_who_has_gone_waits_no_longer(broker: BrokerHarness) -> None:
    """However long the client said: else clients that come, wait and go would fill the memory."""
    connection = broker.connect()
    waiting = broker.send_frame(broker.frame(fetch(0, max_wait_ms=2**31 - 1), 12), connection)
    other = broker.send(fetch(0, max_wait_ms=60_000), 12)
    parking = broker.broker.parking
    assert (waiting.settled, parking.waiting) == (False, 2)
    broker.broker.connection_handler("broker").closed(cast("Any", connection), "reset")
    assert (waiting.settled, other.settled, parking.waiting) == (True, False, 1)
    assert len(broker.hosted().watchers.committed_end) == 1, "only the other one watches on"


def test_who_goes_after_an_answer_has_nothing_to_forget(broker: BrokerHarness) -> None:
    connection = broker.connect()
    answered = broker.send_frame(broker.frame(fetch(0, max_wait_ms=60_000), 12), connection)
    fill(broker)
    assert answered.settled
    assert connection.state.when_gone is None
    broker.broker.connection_handler("broker").closed(cast("Any", connection), "closed by the peer")
