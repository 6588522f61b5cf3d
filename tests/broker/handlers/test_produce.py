"""Produce: what each acks means, every error of ``LogValidator``, and the same bytes from both ways."""

from __future__ import annotations

from typing import Any, cast

import pytest

from blumfeld.broker.produce.straight import StraightProduce
from blumfeld.broker.serving.dispatch import Route
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.control_records import build_transaction_marker
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.compression.codec import Codec
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
)
from blumfeld_kit.fakes.runtime import EPOCH_MS
from tests.broker.batches import batch, produce
from tests.broker.fake_transactions import FakeTransactions
from tests.broker.harness import BrokerHarness, FakeExchange, Succeeding, noting

VERSIONS = range(3, 14)


@pytest.fixture
def broker() -> BrokerHarness:
    return BrokerHarness(partitions=2)


def answer_of(
    broker: BrokerHarness, request: ProduceRequest, version: int = 9, exchange: FakeExchange | None = None
) -> PartitionProduceResponse:
    """The answer of the first partition; to a request that was sent before, if its exchange is given."""
    answer = broker.response(exchange or broker.send(request, version), request, version)
    return cast("PartitionProduceResponse", answer.responses[0].partition_responses[0])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [1, -1])
def test_batches_get_consecutive_offsets_in_every_version(
    broker: BrokerHarness, version: int, acks: int
) -> None:
    topic_id = broker.metadata.image.topics["t"].topic_id
    first = broker.produce_batch(batch(b"a", b"b"), topic_id=topic_id, acks=acks, version=version)
    second = broker.produce_batch(topic_id=topic_id, acks=acks, version=version)
    assert (first.error_code, first.base_offset, second.base_offset) == (0, 0, 2)
    assert first.log_append_time_ms == -1
    assert first.log_start_offset == (0 if version >= 5 else -1)


def test_several_partitions_are_answered_each(broker: BrokerHarness) -> None:
    request = produce(batch(), acks=-1)
    request.topic_data[0].partition_data += [PartitionProduceData(index=i, records=batch()) for i in (1, 2)]
    request.topic_data += produce(batch(), topic="missing").topic_data
    answer = broker.ask(request, 9)
    codes = [[p.error_code for p in topic.partition_responses] for topic in answer.responses]
    assert codes == [[0, 0, 3], [3]]


def test_nothing_is_answered_before_the_write(broker: BrokerHarness) -> None:
    exchange = broker.begin(broker.frame(produce(batch()), 9))
    assert not exchange.settled
    assert exchange.next_may_start
    broker.runtime.run_turn()
    assert exchange.settled


def test_a_turn_writes_once_however_many_requests_it_took(
    broker: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = broker.log_of("t")
    writes = noting(monkeypatch, log, "write", lambda _: log.placed_end_offset)
    exchanges = [broker.begin(broker.frame(produce(batch()), 9)) for _ in range(5)]
    broker.runtime.run_turn()
    assert writes == [5]
    assert all(exchange.settled for exchange in exchanges)


def test_acks_0_has_no_answer(broker: BrokerHarness) -> None:
    exchange = broker.send(produce(batch(), acks=0), 9)
    assert exchange.unanswered
    assert broker.connection.closed is None
    assert broker.log_of("t").written_end_offset == 1


def test_acks_0_with_an_error_closes_the_connection(broker: BrokerHarness) -> None:
    exchange = broker.send(produce(batch(), topic="missing", acks=0), 9)
    assert exchange.unanswered
    assert broker.connection.closed is not None


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_other_acks_are_refused(broker: BrokerHarness, acks: int) -> None:
    assert broker.produced(acks=acks) == ErrorCode.INVALID_REQUIRED_ACKS


def with_byte(at: int, changed: int) -> bytearray:
    """A batch in which one byte has other bits."""
    data = batch()
    data[at] ^= changed
    return data


REFUSED: dict[str, tuple[bytearray | None, ErrorCode]] = {
    "null": (None, ErrorCode.INVALID_RECORD),
    "empty": (bytearray(), ErrorCode.INVALID_RECORD),
    "control": (batch(control=True), ErrorCode.INVALID_RECORD),
    "two batches": (batch() + batch(), ErrorCode.INVALID_RECORD),
    "old magic": (with_byte(16, 3), ErrorCode.INVALID_RECORD),
    "wrong count": (batch(b"a", b"b", last_offset_delta=5), ErrorCode.INVALID_RECORD),
    "offset given": (batch(base_offset=7), ErrorCode.INVALID_RECORD),
    "no sequence": (batch(producer_id=5, producer_epoch=0), ErrorCode.INVALID_RECORD),
    "bad CRC": (with_byte(-1, 1), ErrorCode.CORRUPT_MESSAGE),
    "cut off": (batch()[:-3], ErrorCode.INVALID_RECORD),
    "cut in the header": (batch()[:20], ErrorCode.INVALID_RECORD),
    "an old batch behind it": (batch() + with_byte(16, 3), ErrorCode.INVALID_RECORD),
    "append time": (batch(log_append_time_ms=EPOCH_MS), ErrorCode.INVALID_TIMESTAMP),
    "from the future": (batch(timestamp=EPOCH_MS + 3_700_000), ErrorCode.INVALID_TIMESTAMP),
    "transactional": (batch(transactional=True), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
}
each_refused = pytest.mark.parametrize("name", REFUSED)


@each_refused
def test_a_batch_that_breaks_a_rule_is_refused_and_nothing_is_placed(
    broker: BrokerHarness, name: str
) -> None:
    data, expected = REFUSED[name]
    answer = answer_of(broker, produce(data))
    assert ErrorCode(answer.error_code) == expected
    assert (answer.base_offset, answer.log_append_time_ms) == (-1, -1)
    assert broker.log_of("t").placed_end_offset == 0
    assert broker.connection.closed is None


@pytest.mark.parametrize(
    ("name", "start"),
    [("control", 0), ("wrong count", 0), ("no sequence", 0), ("bad CRC", -1), ("two batches", -1)],
)
def test_the_log_start_is_told_when_the_log_did_not_refuse(
    broker: BrokerHarness, name: str, start: int
) -> None:
    """As Apache Kafka 4.3.1 answers."""
    assert broker.produce_batch(REFUSED[name][0]).log_start_offset == start


def test_the_beginning_of_a_second_batch_is_ignored(broker: BrokerHarness) -> None:
    assert broker.produced(batch() + batch()[:30]) == ErrorCode.NONE
    assert broker.log_of("t").written_end_offset == 1


def test_the_message_says_what_is_wrong(broker: BrokerHarness) -> None:
    answer = broker.produce_batch(REFUSED["wrong count"][0], version=8)
    assert answer.error_message == "2 records, where the offsets leave room for 6"


def test_zstd_needs_version_7(broker: BrokerHarness) -> None:
    data = batch(codec=Codec.ZSTD)
    assert broker.produced(data, version=6) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert broker.produced(data, version=7) == ErrorCode.NONE


def test_sizes_are_limited_by_topic(broker: BrokerHarness) -> None:
    broker.create_topic("small", max_message_bytes="100")
    broker.create_topic("short", segment_bytes="1048576")
    assert broker.produced(batch(bytes(200)), topic="small") == ErrorCode.MESSAGE_TOO_LARGE
    broker.create_topic("both", segment_bytes="1048576", max_message_bytes="10000000")
    assert broker.produced(batch(bytes(1 << 20)), topic="both") == ErrorCode.RECORD_LIST_TOO_LARGE


def test_unknown_places(broker: BrokerHarness) -> None:
    assert broker.produced(topic="no") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.produced(partition=9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.produced(topic_id=b"?" * 16, version=13) == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_transactional_batch_for_another_leader_is_sent_there(broker: BrokerHarness) -> None:
    """The leader may be a broker of Apache Kafka, which has transactions. A refusal would keep the client here."""
    broker.change_partition(leader=2, epoch=1, replicas=(1, 2))
    answer = broker.produce_batch(batch(transactional=True))
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert broker.produced(batch(transactional=True), topic="no") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.log_of("t").placed_end_offset == 0


def test_internal_topics_are_for_the_admin_client(broker: BrokerHarness) -> None:
    topic = "__consumer_offsets"
    broker.create_topic(topic)
    assert broker.produced(topic=topic) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert broker.produced(topic=topic, client_id="__admin_client") == ErrorCode.NONE


def test_two_producers_in_one_request_are_refused(broker: BrokerHarness) -> None:
    first, second = (batch(producer_id=one, producer_epoch=0, base_sequence=0) for one in (1, 2))
    request = produce(first)
    request.topic_data[0].partition_data.append(PartitionProduceData(index=1, records=second))
    answer = broker.ask(request, 9).responses[0].partition_responses
    assert [a.error_code for a in answer] == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2


def test_log_append_time_is_the_brokers(broker: BrokerHarness) -> None:
    broker.create_topic("stamped", message_timestamp_type="LogAppendTime")
    answer = broker.produce_batch(batch(timestamp=5), topic="stamped")
    now = broker.runtime.now_ms()
    assert answer.log_append_time_ms == now
    (stored,) = broker.log_of("stamped").batches(0)
    stored.verify_crc()
    assert (stored.is_log_append_time, stored.max_timestamp) == (True, now)


def test_a_compacted_topic_wants_keys(broker: BrokerHarness) -> None:
    broker.create_topic("compacted", cleanup_policy="compact")
    assert broker.produced(batch(key=None), topic="compacted") == ErrorCode.INVALID_RECORD
    assert broker.produced(topic="compacted") == ErrorCode.NONE


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("version", [7, 8, 13])
def test_records_without_a_key_are_named(broker: BrokerHarness, version: int, codec: Codec) -> None:
    """As Kafka 4.3.1: the 10 of 100 that are wrong, from version 8 on; clients tell the others that it wasn't them."""
    topic_id = broker.create_topic("compacted", cleanup_policy="compact")
    sent = build_batch(
        [
            Record(offset=at, timestamp=EPOCH_MS, key=None if at % 10 == 3 else b"k", value=b"v")
            for at in range(100)
        ],
        codec=codec,
    )
    request = produce(sent, topic="" if version == 13 else "compacted")
    request.topic_data[0].topic_id = topic_id
    answer = answer_of(broker, request, version)
    assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (
        ErrorCode.INVALID_RECORD,
        -1,
        0,
    )
    named = [(error.batch_index, error.batch_index_error_message) for error in answer.record_errors]
    message = "a record of a compacted topic needs a key"
    assert named == ([] if version == 7 else [(at, message) for at in range(3, 100, 10)])
    assert broker.log_of("compacted").written_end_offset == 0


def test_of_very_many_records_without_a_key_some_are_named(
    broker: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blumfeld.wire.batches.records.NULL_KEYS_NAMED_MAX", 2)
    broker.create_topic("compacted", cleanup_policy="compact")
    answer = broker.produce_batch(batch(b"a", b"b", b"c", key=None), topic="compacted")
    assert [error.batch_index for error in answer.record_errors] == [0, 1]
    assert answer.error_message == (
        "3 of 3 records have no key, the first is record 0; every record of a compacted topic needs one"
    )


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_with_a_codec_recompresses(broker: BrokerHarness, codec: str) -> None:
    broker.create_topic("packed", compression_type=codec)
    data = batch(b"a", b"b", codec=Codec.GZIP, producer_id=5, producer_epoch=1, base_sequence=3)
    assert broker.produced(data, topic="packed") == ErrorCode.NONE
    (stored,) = broker.log_of("packed").batches(0)
    stored.verify_crc()
    assert stored.codec.name.lower() == codec.replace("uncompressed", "none")
    assert (stored.record_count, stored.producer_id, stored.base_sequence) == (2, 5, 3)


def idempotent(sequence: int, epoch: int = 0, count: int = 1) -> bytearray:
    values = [b"v"] * count
    return batch(*values, producer_id=9, producer_epoch=epoch, base_sequence=sequence)


def test_a_retry_gets_the_first_offset_again_and_nothing_is_doubled(broker: BrokerHarness) -> None:
    broker.produce_batch()
    first = broker.produce_batch(idempotent(0, count=2))
    again = broker.produce_batch(idempotent(0, count=2))
    assert (first.log_append_time_ms, again.log_append_time_ms) == (-1, EPOCH_MS), "as Kafka does"
    assert (first.base_offset, again.base_offset, again.error_code) == (1, 1, 0)
    assert broker.log_of("t").written_end_offset == 3


def test_a_retry_in_the_same_turn_waits_for_the_original(broker: BrokerHarness) -> None:
    log = broker.log_of("t")
    log.hold_writes = True
    exchanges = [broker.send(produce(idempotent(0), acks=acks), 9) for acks in (1, 1, -1)]
    assert not any(exchange.settled for exchange in exchanges)
    log.let_write()
    broker.runtime.run_turn()
    assert all(exchange.settled for exchange in exchanges)
    assert log.written_end_offset == 1


def test_sequences_and_epochs_are_held(broker: BrokerHarness) -> None:
    assert broker.produced(idempotent(0, epoch=2)) == ErrorCode.NONE
    assert broker.produced(idempotent(2, epoch=2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert broker.produced(idempotent(1, epoch=1)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert broker.produced(idempotent(1, epoch=2)) == ErrorCode.NONE


@pytest.mark.parametrize("acks", [1, -1])
def test_a_failed_write_fails_the_batch_and_all_behind_it(broker: BrokerHarness, acks: int) -> None:
    """And undoes the placed layer: the producer may send the same sequence again."""
    broker.log_of("t").fail_next_write = True
    requests = [produce(idempotent(0), acks=acks), produce(idempotent(1), acks=acks)]
    exchanges = [broker.begin(broker.frame(request, 9)) for request in requests]
    broker.runtime.run_turn()
    for request, exchange in zip(requests, exchanges, strict=True):
        answer = answer_of(broker, request, 9, exchange)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert broker.produce_batch(idempotent(0), acks=acks).base_offset == 0


def test_acks_all_is_refused_up_front_under_min_isr(broker: BrokerHarness) -> None:
    broker.create_topic("safe", min_insync_replicas="2")
    broker.change_partition("safe", replicas=(1, 2), isr=(1,))
    assert broker.produced(topic="safe", acks=-1) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert broker.produced(topic="safe", acks=1) == ErrorCode.NONE


def test_min_isr_is_at_most_the_number_of_replicas(broker: BrokerHarness) -> None:
    broker.create_topic("safe", min_insync_replicas="3")
    assert broker.produced(topic="safe", acks=-1) == ErrorCode.NONE


@pytest.mark.parametrize("version", [9, 10])
def test_acks_all_waits_for_the_isr_until_its_timeout(broker: BrokerHarness, version: int) -> None:
    broker.change_partition(replicas=(1, 2))
    request = produce(batch(), acks=-1, timeout_ms=500)
    exchange = broker.send(request, version)
    broker.runtime.advance(499)
    assert not exchange.settled
    broker.runtime.advance(2)
    assert answer_of(broker, request, version, exchange).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert broker.broker.parking.counts.waiting == 0


def test_acks_all_is_answered_when_the_isr_has_it(broker: BrokerHarness) -> None:
    broker.change_partition(replicas=(1, 2))
    exchange = broker.send(produce(batch(), acks=-1), 9)
    assert not exchange.settled
    broker.leader().follower_fetched(2, 1, 1, 0)
    broker.runtime.run_turn()
    assert exchange.settled
    assert broker.broker.parking.counts.waiting == 0


def test_who_waits_when_leadership_goes_is_told_and_shown_the_leader(broker: BrokerHarness) -> None:
    broker.change_partition(replicas=(1, 2))
    request = produce(batch(), acks=-1)
    exchange = broker.send(request, 10)
    broker.change_partition(leader=-1, epoch=1, partition_epoch=2)
    broker.runtime.run_turn()
    assert answer_of(broker, request, 10, exchange).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    answer = answer_of(broker, request, 10)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (-1, 1)


def test_deletion_of_the_topic_ends_the_wait(broker: BrokerHarness) -> None:
    broker.change_partition(replicas=(1, 2))
    request = produce(batch(), acks=-1)
    exchange = broker.send(request, 9)
    broker.metadata.delete_topic("t")
    broker.runtime.run_turn()
    assert answer_of(broker, request, 9, exchange).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.produced(acks=-1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_long_turn_of_requests_on_a_remembered_prefix_follows_its_partition(broker: BrokerHarness) -> None:
    """A topic that is deleted and made anew is another topic, though requests begin with the same bytes."""
    assert broker.produce_batch().base_offset == 0
    assert broker.produce_batch().base_offset == 1
    broker.metadata.delete_topic("t")
    broker.create_topic("t")
    assert broker.produce_batch().base_offset == 0


def both_ways(broker: BrokerHarness, frame: bytearray) -> tuple[bytes | None, bytes | None, bool]:
    """The same frame by the straight and by the general way, both as retries of one before: the answers, and whether
    the straight way had it to itself.
    """
    version = (frame[2] << 8) + frame[3]
    dispatcher: Any = broker.broker.connection_handler("broker")
    straight = dispatcher.route(0, version)
    assert isinstance(straight, StraightProduce)
    general = straight.general
    calls: list[int] = []

    class Counting:
        flexible = general.flexible
        version = general.version

        def serve(self, *request: Any) -> None:
            calls.append(1)
            general.serve(*request)

    def answer(route: Any) -> bytes | None:
        dispatcher.replace(0, version, route)
        exchange = broker.send_frame(bytearray(frame))
        dispatcher.replace(0, version, straight)
        return None if exchange.unanswered else exchange.data()

    answer(general)
    straight.general = cast("Route", Counting())
    first = answer(straight)
    straight.general = general
    return first, answer(general), not calls


def transactional(sequence: int, epoch: int = 0, count: int = 1, **options: Any) -> bytearray:
    return build_batch(
        [Record(value=b"v", timestamp=EPOCH_MS) for _ in range(count)],
        producer_id=7,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
        **options,
    )


@pytest.fixture
def transacting() -> BrokerHarness:
    """A broker whose coordinator takes every partition into the transaction."""
    return BrokerHarness(transactions=FakeTransactions(), partitions=2)


def in_transaction(
    broker: BrokerHarness,
    sent: bytearray,
    version: int,
    *,
    transactional_id: str | None = "tx",
    acks: int = -1,
) -> bytearray:
    """A request of a transaction for one partition."""
    topic_id = broker.metadata.image.topics["t"].topic_id
    return broker.frame(
        produce(sent, topic_id=topic_id, partition=1, acks=acks, transactional_id=transactional_id), version
    )


@pytest.mark.parametrize("version", [8, 11, 12, 13])
@pytest.mark.parametrize(
    ("sent", "transactional_id"),
    [
        (idempotent(0), "tx"),
        (transactional(5), "tx"),
        (transactional(1), None),
        (transactional(1), ""),
        (transactional(1), "x" * 127),
        (transactional(1, control=True), "tx"),
        (transactional(1) + transactional(2), "tx"),
    ],
    ids=["not transactional", "gap", "no id", "empty id", "long id", "control", "two batches"],
)
def test_any_other_batch_of_a_transaction_goes_the_general_way(
    transacting: BrokerHarness, version: int, sent: bytearray, transactional_id: str | None
) -> None:
    """It is taken or refused in the same words."""
    broker = transacting
    broker.send_frame(in_transaction(broker, transactional(0), version))
    broker.runtime.run_turn()
    straight, general, alone = both_ways(
        broker, in_transaction(broker, sent, version, transactional_id=transactional_id)
    )
    assert straight == general
    # A compact length of two bytes is too rare to be worth its code. In version 8 all lengths have two.
    assert alone == (version == 8 and len(transactional_id or "") > 126)


def test_a_transaction_that_has_ended_is_verified_again(transacting: BrokerHarness) -> None:
    """A remembered prefix says nothing of the transaction."""
    broker = transacting
    coordinator = cast("FakeTransactions", broker.broker.composition.transactions)
    for sequence in (0, 1):
        broker.send_frame(in_transaction(broker, transactional(sequence), 12))
        broker.runtime.run_turn()
    assert len(coordinator.asked) == 1
    marker = build_transaction_marker(
        commit=True, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=EPOCH_MS
    )
    broker.hosted("t", 1).place(RecordBatch(memoryview(marker)), -1, Succeeding())
    broker.runtime.run_turn()
    broker.send_frame(in_transaction(broker, transactional(2), 12))
    broker.runtime.run_turn()
    assert len(coordinator.asked) == 2


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("in_a_transaction", [False, True])
def test_the_fast_way_answers_as_the_general_one(
    transacting: BrokerHarness, version: int, acks: int, in_a_transaction: bool
) -> None:
    """A retry by the other way gives the original's offset, so that both answers must be the same bytes. The first
    batch of a transaction goes the general way, which asks the coordinator."""
    broker = transacting
    topic_id = broker.metadata.image.topics["t"].topic_id
    frame = broker.frame(produce(idempotent(0, count=3), topic_id=topic_id, partition=1, acks=acks), version)
    if in_a_transaction:
        broker.send_frame(in_transaction(broker, transactional(0), version, acks=acks))
        broker.runtime.run_turn()
        frame = in_transaction(broker, transactional(1, count=3), version, acks=acks)
    straight, general, alone = both_ways(broker, frame)
    assert straight == general
    assert alone
    assert broker.log_of("t", 1).written_end_offset == 3 + in_a_transaction


@pytest.mark.parametrize("version", VERSIONS)
@each_refused
def test_what_is_refused_is_refused_in_the_same_words(broker: BrokerHarness, version: int, name: str) -> None:
    topic_id = broker.metadata.image.topics["t"].topic_id
    straight, general, _ = both_ways(
        broker, broker.frame(produce(REFUSED[name][0], topic_id=topic_id), version)
    )
    assert straight == general


@pytest.mark.parametrize("version", [8, 9, 12, 13])
@pytest.mark.parametrize("in_a_transaction", [False, True])
def test_every_cut_of_a_request_is_served_alike(
    transacting: BrokerHarness, version: int, in_a_transaction: bool
) -> None:
    """Cut anywhere, the straight way must not read what isn't there: the general one decides, and closes."""
    broker = transacting
    topic_id = broker.metadata.image.topics["t"].topic_id
    whole = broker.frame(produce(batch(), topic_id=topic_id), version)
    if in_a_transaction:
        broker.send_frame(in_transaction(broker, transactional(0), version))
        broker.runtime.run_turn()
        whole = in_transaction(broker, transactional(1), version)
    for size in range(10, len(whole)):
        broker.connection.closed = None
        exchange = broker.send_frame(whole[:size])
        broker.runtime.run_turn()
        assert exchange.settled
        assert exchange.unanswered == (broker.connection.closed is not None)


def test_the_batch_on_disk_is_what_was_sent_but_for_offset_and_epoch(broker: BrokerHarness) -> None:
    sent = batch(b"a", codec=Codec.LZ4)
    broker.produce_batch()
    broker.produce_batch(bytes(sent))
    stored = list(broker.log_of("t").batches(0))[1]
    assert (stored.base_offset, stored.partition_leader_epoch) == (1, 0)
    assert bytes(stored.data[16:]) == bytes(sent[16:])
    assert RecordBatch(memoryview(sent)).size_bytes == stored.size_bytes
