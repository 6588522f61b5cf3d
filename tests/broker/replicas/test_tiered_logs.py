"""Replicas whose log has a part in a remote store: the log is exchanged while it serves, and each look at the start is
at the right one of two."""

from __future__ import annotations

import errno
from typing import Any, cast

import pytest

from blumfeld.broker.upkeep.retention import retain
from blumfeld.config.values import TopicConfig
from blumfeld.spi.leader_epochs import EpochEntry
from blumfeld.spi.tiering import local_log_start_offset, tiered
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from blumfeld_kit.fakes.tiered_storage import RemoteStore, tiered_log
from tests.broker.batches import batch, produce
from tests.broker.harness import partition_image
from tests.broker.replicas.replica_cluster import Cluster
from tests.broker.replicas.tiered import AT, TIERED, TieredBroker

PLAIN = {"internal.segment.bytes": "200"}
WEEK_MS = 7 * 24 * 3_600_000


@pytest.fixture
def broker() -> TieredBroker:
    return TieredBroker(TIERED)


def ends(broker: TieredBroker) -> tuple[int, int, int]:
    log = broker.hosted().log
    return log.log_start_offset, local_log_start_offset(log), log.written_end_offset


# The exchange


def test_a_topic_that_becomes_tiered_gets_another_log_and_loses_no_outcome() -> None:
    broker = TieredBroker(PLAIN)
    broker.append()
    before = broker.hosted().log
    assert tiered(before) is None
    begun = [broker.begin(broker.frame(produce(batch(b"v"), acks=acks), 9)) for acks in (1, -1)]
    broker.configure(TIERED, turn=False)
    begun.append(broker.begin(broker.frame(produce(batch(b"v")), 9)))
    broker.runtime.run_turn()
    offsets = [
        broker.response(exchange, produce(batch(b"v")), 9).responses[0].partition_responses[0].base_offset
        for exchange in begun
    ]
    assert offsets == [1, 2, 3]
    assert broker.log_now.inner is before
    assert broker.hosted().tiered is broker.hosted().log


def test_the_state_of_a_replica_goes_on_beside_the_new_log() -> None:
    broker = TieredBroker(PLAIN)
    broker.append(3)
    broker.configure(TIERED)
    broker.append(4)
    broker.log_now.copy()
    broker.log_now.drop_segments(4)
    broker.hosted().log_start_moved()
    state = broker.hosted().state
    assert state.epochs.entries == [EpochEntry(0, 0)], "epochs are kept back to the start of the whole log"
    state.truncate_to(5)
    assert ends(broker) == (0, 4, 5)
    assert state.producers.end_offset == 5
    assert state.epochs.entries == [EpochEntry(0, 0)]


def test_a_topic_whose_tiering_ends_begins_at_the_local_start(broker: TieredBroker) -> None:
    broker.append(6)
    broker.moved_away(4)
    told: list[str] = []
    broker.hosted().watchers.add(Told(told), log_end=False)
    broker.configure({**PLAIN, "remote.log.delete.on.disable": "true"})
    assert tiered(broker.hosted().log) is None
    assert ends(broker) == (4, 4, 6)
    assert broker.hosted().state.epochs.entries == [EpochEntry(0, 4)]
    assert told == ["changed"]
    broker.append()
    assert ends(broker) == (4, 4, 7)


class Told:
    """``EndWatcher`` that notes what it is told."""

    def __init__(self, told: list[str]) -> None:
        self._told = told

    def moved(self) -> None:
        self._told.append("moved")

    def changed(self) -> None:
        self._told.append("changed")


def test_a_follower_goes_on_with_the_new_log() -> None:
    cluster = Cluster(2, RemoteStore())
    cluster.append(3)
    cluster.settle()
    follower = cluster.replicas[2]
    storage = cast("Any", follower.node.storage)
    for configs in ({}, {"remote.storage.enable": "true"}):
        follower.partition.reconfigure(TopicConfig(configs), storage)
        assert follower.host.log is follower.partition.log
        assert (follower.partition.tiered is None) == (not configs)
        cluster.append(3)
        cluster.settle()
        cluster.check()


def test_a_follower_begins_at_its_leaders_local_start_with_the_state_from_the_store() -> None:
    cluster = Cluster(1, RemoteStore())
    for _ in range(10):
        cluster.produce(7)
    cluster.elect(1)
    for _ in range(10):
        cluster.produce(7)
    cluster.append(4)
    leader = cluster.leader
    tiered_log(leader.log).copy()
    leader.log.drop_segments(15)
    leader.partition.log_start_moved()
    local = local_log_start_offset(leader.log)
    assert 10 < local <= 15
    cluster.join(2)
    cluster.settle()
    cluster.check()
    follower = cluster.replicas[2]
    assert (follower.log.log_start_offset, local_log_start_offset(follower.log)) == (0, local)
    assert follower.partition.state.epochs.entries == leader.partition.state.epochs.entries
    follower.restart(clean=True)
    follower.apply(cluster.image())
    cluster.settle()
    cluster.check()


def test_a_storage_that_cannot_exchange_the_log_takes_the_partition_offline() -> None:
    broker = TieredBroker(PLAIN)
    broker.tiering.refuses = OSError(errno.EIO, "bad disk")
    broker.configure(TIERED)
    assert broker.hosted().closed is ErrorCode.KAFKA_STORAGE_ERROR
    broker.configure(PLAIN)
    assert broker.hosted().closed is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_configuration_that_comes_while_the_log_is_opened_is_the_one_that_it_has() -> None:
    broker = TieredBroker()
    inner = cast("Any", broker.tiering.inner)
    open_log = inner.open_log

    async def slow(*args: Any, **options: Any) -> Any:
        broker.configure(TIERED, turn=False)
        return await open_log(*args, **options)

    inner.open_log = slow
    broker.metadata.create_topic("t", 1, PLAIN)
    broker.runtime.run_turn()
    assert broker.hosted().config.remote_storage_enable
    assert tiered(broker.hosted().log) is not None


# Two starts


def test_a_tiered_log_opens_with_its_whole_start_and_the_state_of_its_local_part(
    broker: TieredBroker,
) -> None:
    for sequence in range(6):
        broker.append(producer_id=4, producer_epoch=0, base_sequence=sequence)
        if sequence == 2:
            broker.metadata.change_partition("t", partition_image(epoch=3))
            broker.runtime.run_turn()
    broker.moved_away(4)
    again = broker.reopened()
    assert ends(again) == (0, 4, 6)
    state = again.hosted().state
    assert [(e.epoch, e.start_offset) for e in state.epochs.entries] == [(0, 0), (3, 3)]
    entry = state.producers.producer(4)
    assert entry is not None
    assert entry.last_sequence == 5
    assert again.hosted().high_watermark == 6


def test_a_high_watermark_that_is_lost_begins_at_the_local_start(broker: TieredBroker) -> None:
    broker.append(6)
    broker.moved_away(4)
    log = broker.hosted().log
    broker.hosted().state.attach(log, 0)
    assert broker.hosted().state.high_watermark == 4


def test_leader_epochs_that_are_lost_are_found_again_in_the_local_part(broker: TieredBroker) -> None:
    broker.append(producer_id=4, producer_epoch=0, base_sequence=0)
    broker.append(5)
    broker.moved_away(4)
    aux = broker.hosted().log.aux
    broker.stop()
    aux.write("leader-epoch-checkpoint", b"nonsense")
    state = broker.reopened().hosted().state
    assert state.epochs.entries == [EpochEntry(0, 4)]
    assert state.producers.producer(4) is not None, "the snapshot of the local start is good"


def delete_records(broker: TieredBroker, offset: int) -> int:
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
            )
        ]
    )
    result = broker.ask(request, 2).topics[0].partitions[0]
    assert result.error_code == 0
    low_watermark: int = result.low_watermark
    return low_watermark


def test_records_are_deleted_below_and_above_the_local_start(broker: TieredBroker) -> None:
    broker.append(6)
    broker.moved_away(4)
    assert delete_records(broker, 2) == 2
    assert ends(broker) == (2, 4, 6)
    assert broker.hosted().state.epochs.entries == [EpochEntry(0, 2)]
    assert delete_records(broker, 5) == 5
    assert ends(broker) == (5, 5, 6)


# Retention


def test_local_segments_go_by_the_local_limits_once_the_store_has_them() -> None:
    broker = TieredBroker({**TIERED, "local.retention.bytes": "1", "retention.ms": "-1"})
    broker.append(6)
    now_ms = broker.runtime.now_ms()
    assert retain(broker.hosted(), now_ms) == 0, "nothing is copied"
    broker.log_now.copy(2)
    assert retain(broker.hosted(), now_ms) > 0
    assert ends(broker) == (0, 2, 6)
    broker.log_now.copy()
    retain(broker.hosted(), now_ms)
    start, local, end = ends(broker)
    assert (start, end) == (0, 6)
    assert local == broker.log_now.copied_end_offset


def test_local_segments_go_by_local_time() -> None:
    broker = TieredBroker({**TIERED, "local.retention.ms": "1000"})
    broker.append(6)
    broker.log_now.copy()
    now_ms = broker.runtime.now_ms()
    assert retain(broker.hosted(), now_ms + 500) == 0
    assert retain(broker.hosted(), now_ms + 60_000) > 0
    assert ends(broker)[0] == 0


def test_local_limits_of_minus_two_are_the_total_ones() -> None:
    broker = TieredBroker({**TIERED, "retention.ms": "1000"})
    broker.append(6)
    broker.log_now.copy()
    assert retain(broker.hosted(), broker.runtime.now_ms() + 500) == 0
    assert retain(broker.hosted(), broker.runtime.now_ms() + 60_000) > 0


def test_segments_that_nobody_copied_go_below_the_log_start(broker: TieredBroker) -> None:
    broker.append(6)
    delete_records(broker, 5)
    assert broker.log_now.copied_end_offset == -1
    assert retain(broker.hosted(), broker.runtime.now_ms()) > 0
    assert broker.log_now.segments()[0].base_offset > 0


def test_without_copies_the_total_limits_hold_for_the_local_part_and_the_store_loses_what_lies_below() -> (
    None
):
    broker = TieredBroker(TIERED)
    broker.append(6)
    broker.moved_away(2)
    disabled = {
        **TIERED,
        "remote.log.copy.disable": "true",
        "retention.ms": "1000",
        "local.retention.ms": "1",
    }
    broker.configure(disabled)
    assert retain(broker.hosted(), broker.runtime.now_ms() + 500) == 0
    assert ends(broker) == (0, 2, 6)
    assert retain(broker.hosted(), broker.runtime.now_ms() + WEEK_MS) > 0
    assert ends(broker) == (6, 6, 6)


# LocalPartitions.advance_log_start


def test_a_plug_in_moves_the_log_start_of_a_partition_that_is_led_in_its_epoch(broker: TieredBroker) -> None:
    broker.append(6)
    broker.moved_away(4)
    led = broker.broker.local_partitions
    assert led.advance_log_start(AT, 2, 0) == 2
    assert led.advance_log_start(AT, 1, 0) == 2
    assert ends(broker) == (2, 4, 6)
    for offset, epoch, code in (
        (4, 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (7, 0, ErrorCode.OFFSET_OUT_OF_RANGE),
    ):
        with pytest.raises(BrokerError) as refused:
            led.advance_log_start(AT, offset, epoch)
        assert refused.value.code is code
    broker.metadata.change_partition("t", partition_image(epoch=3))
    broker.runtime.run_turn()
    with pytest.raises(BrokerError) as refused:
        led.advance_log_start(AT, 3, 0)
    assert refused.value.code is ErrorCode.FENCED_LEADER_EPOCH
