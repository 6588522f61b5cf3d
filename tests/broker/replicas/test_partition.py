"""Replicas over their life: opening, state found again, deletion, retention, what a failing disk does."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from blumfeld.broker.replicas.state.replica_state import (
    GAPS_MAX,
    PRODUCERS_SHARES,
    SEARCHED_BYTES_MAX,
)
from blumfeld.log.leader_epochs import FILE_NAME as EPOCHS
from blumfeld.spi.cluster import BROKER_RESOURCE, TOPIC_RESOURCE, ImageDelta
from blumfeld.spi.completion import Completion
from blumfeld.spi.storage import InconsistentTopicIdError, TopicPartition
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.errors import ErrorCode, InvalidRecord
from tests.broker.batches import batch, produce
from tests.broker.harness import BrokerHarness, failing, partition_image

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@pytest.fixture
def broker() -> BrokerHarness:
    return BrokerHarness(partitions=1)


def sequence(number: int) -> bytearray:
    return batch(producer_id=4, producer_epoch=0, base_sequence=number)


def gap(broker: BrokerHarness, data: bytearray) -> ErrorCode:
    """Send a batch out of order, and again: a leader that has just begun believes it then."""
    assert broker.produced(bytearray(data)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    return broker.produced(data)


def test_an_epoch_starts_with_its_first_batch(broker: BrokerHarness) -> None:
    broker.produced()
    broker.change_partition(epoch=3)
    assert broker.hosted().state.epochs.latest_epoch == 3
    assert broker.log_of("t").aux.files[EPOCHS] == b"0\n1\n0 0\n", "kept with the first batch"
    broker.produced()
    assert list(broker.hosted().state.epochs.entries) == [(0, 0), (3, 1)]
    broker.runtime.advance(10)  # the file waits for its turn behind the first one
    assert broker.log_of("t").aux.files[EPOCHS] == b"0\n2\n0 0\n3 1\n"


def test_a_failed_write_keeps_no_epoch(broker: BrokerHarness) -> None:
    broker.log_of("t").fail_next_write = True
    assert broker.produced() == ErrorCode.KAFKA_STORAGE_ERROR
    assert EPOCHS not in broker.log_of("t").aux.files
    assert broker.produced() == ErrorCode.NONE
    assert EPOCHS in broker.log_of("t").aux.files
    assert list(broker.hosted().state.epochs.entries) == [(0, 0)]


def test_an_old_leader_epoch_changes_nothing(broker: BrokerHarness) -> None:
    broker.change_partition(epoch=3)
    topic_id = broker.hosted().topic_id
    refused = broker.broker.partitions.apply(TopicPartition("t", 0), topic_id, partition_image(epoch=2))
    assert refused == ErrorCode.FENCED_LEADER_EPOCH
    assert broker.hosted().leader_epoch == 3


def test_what_was_placed_in_an_epoch_is_written_before_the_next(broker: BrokerHarness) -> None:
    exchange = broker.begin(broker.frame(produce(batch()), 9))
    broker.change_partition(epoch=3)
    broker.produced()
    assert exchange.settled
    assert [b.partition_leader_epoch for b in broker.log_of("t").batches(0)] == [0, 3]
    assert list(broker.hosted().state.epochs.entries) == [(0, 0), (3, 1)]


def offset_of(broker: BrokerHarness, data: bytearray) -> tuple[ErrorCode, int]:
    """Produce a batch; return the answer's code and base offset."""
    answer = broker.produce_batch(data, acks=-1)
    return ErrorCode(answer.error_code), answer.base_offset


@pytest.mark.parametrize("others", [5, 40])
def test_batches_whose_answers_were_lost_are_known_after_a_clean_restart(
    broker: BrokerHarness, others: int
) -> None:
    """A client repeats up to five. The producer snapshot of a clean stop has the last one only, as Kafka's."""
    lengths = (2, 1, 3, 1, 1)
    starts = [sum(lengths[:nth]) for nth in range(len(lengths))]
    batches = [
        batch(*[b"v"] * length, producer_id=4, producer_epoch=0, base_sequence=start)
        for length, start in zip(lengths, starts, strict=True)
    ]
    offsets = []
    for data in batches:
        offsets.append(offset_of(broker, bytearray(data))[1])
        for _ in range(others):  # others write here, too
            broker.produced()
    again = broker.restarted()
    end_offset = again.log_of("t").written_end_offset
    assert [offset_of(again, bytearray(data)) for data in batches] == [(ErrorCode.NONE, at) for at in offsets]
    assert again.log_of("t").written_end_offset == end_offset
    assert offset_of(again, sequence(sum(lengths))) == (ErrorCode.NONE, end_offset)


def test_a_batch_is_known_behind_more_than_five_later_ones(broker: BrokerHarness) -> None:
    """The Java client's limit of five is that of a connection: while a former leader that was cut off holds four
    batches, it sends any number to the next one. Then it repeats the four, and nothing else until they are answered.
    """
    offsets = [offset_of(broker, sequence(number))[1] for number in range(60)]
    again = [offset_of(broker, sequence(number)) for number in range(4)]
    assert again == [(ErrorCode.NONE, at) for at in offsets[:4]]
    assert broker.log_of("t").written_end_offset == len(offsets)


def test_a_batch_that_no_batch_of_the_log_is_like_is_no_repetition(broker: BrokerHarness) -> None:
    for number in range(3):
        broker.produced(sequence(number))
    again = broker.restarted()
    other = batch(b"v", b"w", producer_id=4, producer_epoch=0, base_sequence=0)
    assert gap(again, other) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_search_for_a_repetition_reads_no_more_than_some_megabytes(
    broker: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """256 batches of 900 kB from a disk held the loop for a second."""
    for _ in range(20):
        broker.produced(batch(bytes(900_000)))
    broker.produced(sequence(1_000))
    log, read_bytes = broker.log_of("t"), 0
    batches = log.batches

    def counting(offset: int) -> Iterator[RecordBatch]:
        nonlocal read_bytes
        for each in batches(offset):
            read_bytes += each.size_bytes
            yield each

    monkeypatch.setattr(log, "batches", counting)
    assert broker.produced(sequence(10)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    # The general way of Produce tries again what the straight way refused.
    searches = 2 * (len(PRODUCERS_SHARES) + 1)
    assert 0 < read_bytes <= searches * (SEARCHED_BYTES_MAX + 2_000_000)


@pytest.mark.parametrize(
    ("number", "expected"), [(errno.EMFILE, ErrorCode.NONE), (errno.EIO, ErrorCode.KAFKA_STORAGE_ERROR)]
)
def test_a_search_for_a_repetition_that_lacks_a_descriptor_costs_its_request_only(
    broker: BrokerHarness, monkeypatch: pytest.MonkeyPatch, number: int, expected: ErrorCode
) -> None:
    broker.produced(sequence(1_000))
    with monkeypatch.context() as patch:
        patch.setattr(broker.log_of("t"), "batches", failing(OSError(number, "no")))
        assert broker.produced(sequence(10)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.produced() == expected


def test_a_gap_at_a_new_leader_is_a_request_that_came_too_early(broker: BrokerHarness) -> None:
    """Its predecessor came before this node led, and was refused. However late it is, the client sends both again, in
    order.
    """
    broker.produced(sequence(0))
    broker.change_partition(epoch=3)
    broker.runtime.advance(HOUR_MS)
    assert broker.produced(sequence(2)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert broker.produced(sequence(3)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [broker.produced(sequence(one)) for one in (0, 1, 2)] == [ErrorCode.NONE] * 3
    assert broker.log_of("t").written_end_offset == 3
    assert broker.produced(sequence(5)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, (
        "it has written in this epoch"
    )


def test_a_gap_behind_a_batch_that_lacked_replicas_is_a_request_that_came_too_early(
    broker: BrokerHarness,
) -> None:
    """The second replica comes into sync between two requests of one producer."""
    broker.create_topic("safe", min_insync_replicas="2")
    assert broker.produced(sequence(0), topic="safe") == ErrorCode.NONE
    broker.runtime.advance(HOUR_MS)
    broker.change_partition("safe", replicas=(1, 2), isr=(1,))
    assert broker.produced(sequence(1), topic="safe", acks=-1) == ErrorCode.NOT_ENOUGH_REPLICAS
    broker.change_partition("safe", replicas=(1, 2), partition_epoch=2)
    for late in (2, 3):
        assert broker.produced(sequence(late), topic="safe") == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [broker.produced(sequence(late), topic="safe") for late in (1, 2, 3)] == [ErrorCode.NONE] * 3


def test_a_gap_behind_a_batch_that_found_no_room_is_a_request_that_came_too_early(
    broker: BrokerHarness,
) -> None:
    broker.produced(sequence(0))
    broker.log_of("t").fail_next_write = True
    assert broker.produced(sequence(1)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.produced(sequence(2)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [broker.produced(sequence(one)) for one in (1, 2)] == [ErrorCode.NONE] * 2


def test_a_gap_is_real_when_the_batch_behind_it_comes_again(broker: BrokerHarness) -> None:
    broker.produced(sequence(0))
    broker.change_partition(epoch=3)
    assert [broker.produced(sequence(late)) for late in (2, 3)] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert [broker.produced(sequence(late)) for late in (2, 3)] == [
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    ] * 2
    broker.change_partition(epoch=4)
    assert broker.produced(sequence(2)) == ErrorCode.NOT_LEADER_OR_FOLLOWER, (
        "another leader knows nothing of it"
    )


def test_a_real_gap_is_told_to_the_first_batch_behind_it(broker: BrokerHarness) -> None:
    """That one was refused by another leader at first, so this one heard of a later batch before."""
    broker.produced(sequence(0))
    broker.change_partition(epoch=3)
    assert broker.produced(sequence(6)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [broker.produced(sequence(late)) for late in (5, 6)] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert [broker.produced(sequence(late)) for late in (5, 6)] == [
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    ] * 2


def test_gaps_of_many_producers_take_a_bounded_memory(broker: BrokerHarness) -> None:
    def late(producer: int) -> ErrorCode:
        return broker.produced(batch(producer_id=producer, producer_epoch=0, base_sequence=2))

    producers = range(GAPS_MAX + 1)
    for producer in producers:
        broker.produced(batch(producer_id=producer, producer_epoch=0, base_sequence=0))
    broker.change_partition(epoch=3)
    assert {late(producer) for producer in producers} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert late(GAPS_MAX) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert late(0) == ErrorCode.NOT_LEADER_OR_FOLLOWER, "the oldest is forgotten"


def test_producers_and_epochs_are_found_by_replay_after_a_crash(broker: BrokerHarness) -> None:
    broker.produced(sequence(0))
    log = broker.log_of("t")
    log.roll()
    broker.produced(sequence(1))
    del log.aux.files[EPOCHS]
    again = broker.restarted(clean=False)
    assert again.produced(sequence(1)) == ErrorCode.NONE
    assert log.written_end_offset == 2
    assert again.produced(sequence(2)) == ErrorCode.NONE
    assert again.produced(sequence(4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_high_watermark_is_checkpointed_and_found_again(broker: BrokerHarness) -> None:
    broker.produced()
    broker.runtime.advance(5_001)
    assert broker.storage.checkpointed == {TopicPartition("t", 0): 1}
    assert broker.restarted().hosted().high_watermark == 1


def test_a_deleted_topic_leaves_no_log(broker: BrokerHarness) -> None:
    """Nor is the log that is deleted sealed for a next start."""
    log = broker.log_of("t")
    broker.metadata.delete_topic("t")
    assert broker.storage.deleted == [TopicPartition("t", 0)]
    assert not log.closed
    assert broker.broker.partitions.find("t", 0) is None
    assert broker.broker.partitions.by_id == {}


def test_a_topic_deleted_while_its_log_is_opened_leaves_none(broker: BrokerHarness) -> None:
    broker.storage.open_slowly = Completion()
    broker.create_topic("slow")
    broker.metadata.delete_topic("slow")
    broker.storage.open_slowly.complete(None)
    broker.runtime.run_turn()
    assert broker.storage.deleted == [TopicPartition("slow", 0)]
    assert broker.broker.partitions.find("slow", 0) is None
    assert broker.broker.partitions.settled().done


def test_what_the_image_says_while_a_log_is_opened_counts_once_it_is(broker: BrokerHarness) -> None:
    broker.storage.open_slowly = Completion()
    broker.create_topic("slow")
    broker.change_partition("slow", epoch=8)
    broker.storage.open_slowly.complete(None)
    broker.runtime.run_turn()
    assert broker.hosted("slow").leader_epoch == 8


@pytest.mark.parametrize(("threads", "at_once"), [(1, 1), (2, 2), (100, 4)])
def test_so_many_logs_are_opened_at_once_as_it_is_configured(threads: int, at_once: int) -> None:
    """But no more than there are workers."""
    broker = BrokerHarness(config={"num.recovery.threads.per.data.dir": threads})
    broker.storage.open_slowly = Completion()
    broker.create_topic("many", 9)
    broker.runtime.run_turn()
    assert broker.storage.waiting == at_once
    broker.storage.open_slowly.complete(None)
    broker.runtime.run_turn()
    assert broker.storage.waiting == 0
    assert broker.broker.partitions.settled().done
    assert len(list(broker.broker.partitions)) == 9
    broker.stop()


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (OSError("no such device"), ErrorCode.KAFKA_STORAGE_ERROR),
        (InconsistentTopicIdError("another topic's directory"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ValueError("a defect that is no answer"), ErrorCode.KAFKA_STORAGE_ERROR),
        (InvalidRecord("no control record"), ErrorCode.KAFKA_STORAGE_ERROR),
        (RuntimeError("a defect of the storage"), ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_a_log_that_cannot_be_opened_is_told_and_others_are(
    broker: BrokerHarness, error: Exception, answer: ErrorCode
) -> None:
    broker.storage.refuse_to_open = error
    broker.create_topic("bad")
    broker.storage.refuse_to_open = None
    broker.create_topic("good")
    assert broker.produced(topic="bad") == answer
    assert broker.produced(topic="good") == ErrorCode.NONE
    assert ("error", "log not opened") in [event[:2] for event in broker.log.events]
    assert broker.broker.partitions.settled().done


@pytest.mark.parametrize("call", ["place", "write"])
def test_a_log_that_raises_goes_offline(broker: BrokerHarness, call: str) -> None:
    setattr(broker.log_of("t"), call, failing(OSError("input/output error")))
    assert [broker.produced() for _ in range(2)] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert broker.hosted().closed == ErrorCode.KAFKA_STORAGE_ERROR
    assert ("error", "partition offline") in [event[:2] for event in broker.log.events]


@pytest.mark.parametrize("leader", [1, 2])
def test_a_disk_that_fails_at_the_end_of_an_epoch_leaves_no_replica(
    broker: BrokerHarness, leader: int
) -> None:
    """The batches of the old epoch are written before the new one begins, and that write fails."""
    exchange = broker.begin(broker.frame(produce(batch()), 9))
    broker.log_of("t").write = failing(OSError(errno.EIO, "input/output error"))  # type: ignore[method-assign]
    broker.change_partition(epoch=3, leader=leader, replicas=(1, 2), isr=(1,))
    partition = broker.hosted()
    assert exchange.settled
    assert partition.closed == ErrorCode.KAFKA_STORAGE_ERROR
    assert (partition.leader, partition.following) == (None, None)
    assert broker.produced() == ErrorCode.KAFKA_STORAGE_ERROR


# Configuration


def test_a_changed_topic_configuration_holds_at_once(broker: BrokerHarness) -> None:
    broker.metadata.image.configs[TOPIC_RESOURCE, "t"] = {"max.message.bytes": "69"}
    broker.metadata.tell(ImageDelta(configs_changed=((TOPIC_RESOURCE, "t"),)))
    assert broker.produced() == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("resource", ["", "1"])
def test_a_changed_broker_configuration_holds_for_all_topics(broker: BrokerHarness, resource: str) -> None:
    broker.metadata.image.configs[BROKER_RESOURCE, resource] = {"message.max.bytes": "69"}
    broker.metadata.tell(ImageDelta(configs_changed=((BROKER_RESOURCE, resource),)))
    assert broker.broker.cluster.config.int("message.max.bytes") == 69
    assert broker.produced() == ErrorCode.MESSAGE_TOO_LARGE


# Announcements


def test_topics_and_leaders_are_announced(broker: BrokerHarness) -> None:
    broker.change_partition(epoch=3)
    broker.metadata.delete_topic("t")
    assert broker.hook.events == [
        ("created", "t"),
        ("leader", "t-0 epoch 0"),
        ("leader", "t-0 epoch 3"),
        ("deleted", "t"),
    ]


def test_a_stop_closes_every_log(broker: BrokerHarness) -> None:
    broker.stop()
    assert broker.log_of("t").closed
    assert broker.storage.stopped_at_epoch == 7
    broker.stop()


def test_a_stop_waits_for_a_log_that_is_being_opened_and_closes_it(broker: BrokerHarness) -> None:
    """Its storage would else release the lock, and another process recover the same log at the same time."""
    broker.create_topic("slow")
    for _ in range(3):
        broker.produced(topic="slow")
    again = BrokerHarness(storage=broker.storage, start=False)
    again.metadata.image = broker.metadata.image
    broker.stop()
    broker.storage.stopped_at_epoch = None
    broker.storage.open_slowly = Completion()
    starting = again.runtime.loop.create_task(again.broker.start())
    again.runtime.run_turn()
    assert again.storage.waiting
    starting.cancel()
    stopping = again.runtime.loop.create_task(again.broker.stop())
    again.runtime.advance(10_000)
    assert not stopping.done()
    broker.storage.open_slowly.complete(None)
    again.runtime.run_turn()
    assert stopping.done()
    assert again.log_of("slow").closed
    assert list(again.broker.partitions) == []
    assert again.storage.deleted == []
    assert again.storage.checkpointed[TopicPartition("slow", 0)] == 3


def test_a_stop_writes_what_was_placed(broker: BrokerHarness) -> None:
    exchange = broker.begin(broker.frame(produce(sequence(0)), 9))
    partition = broker.hosted()
    partition.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert exchange.settled
    assert broker.log_of("t").written_end_offset == 1
    assert "00000000000000000001.snapshot" in broker.log_of("t").aux.files


def test_a_log_that_found_no_room_is_opened_once_there_is_some() -> None:
    """A disk that is full for a while costs no restart; any other error does."""
    broker = BrokerHarness()
    broker.storage.refuse_to_open = OSError(errno.ENOSPC, "no space left")
    broker.create_topic("t")
    assert broker.produced() == ErrorCode.KAFKA_STORAGE_ERROR
    broker.runtime.advance(2_500)
    assert broker.produced() == ErrorCode.KAFKA_STORAGE_ERROR
    broker.storage.refuse_to_open = None
    broker.runtime.advance(1_000)
    assert broker.produced() == ErrorCode.NONE
    broker.storage.refuse_to_open = OSError(errno.EIO, "bad sector")
    broker.create_topic("u")
    broker.storage.refuse_to_open = None
    broker.runtime.advance(10_000)
    assert broker.produced(topic="u") == ErrorCode.KAFKA_STORAGE_ERROR
