"""Fetches of a log whose older records lie in a remote store."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from blumfeld.broker.fetch.reads import PartitionRead, Reader
from blumfeld.broker.fetch_sessions import FetchPartition
from blumfeld.wire.batches.record_batch import split_batches
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.fetch import ReplicaState
from blumfeld_kit.fakes.tiered_storage import RemoteStore, tiered_log
from tests.broker.batches import fetch
from tests.broker.harness import FakeExchange, partition_image
from tests.broker.replicas.replica_cluster import Cluster, Nobody
from tests.broker.replicas.tiered import TIERED, TieredBroker
from tests.log.batches import data_batch, marker

VERSION = 17


@pytest.fixture
def broker() -> TieredBroker:
    """Offsets 0 to 7, of which the first four are in the store alone."""
    made = TieredBroker(TIERED)
    made.append(8)
    made.moved_away(4)
    assert made.log_now.local_log_start_offset == 4
    return made


def asked(broker: TieredBroker, offset: int, **options: Any) -> Any:
    """The answer's partition, which may take some time."""
    exchange = begun(broker, offset, **options)
    broker.runtime.advance(20)
    return answer(broker, exchange)


def begun(broker: TieredBroker, offset: int, connection: Any = None, **options: Any) -> FakeExchange:
    request = fetch(offset, topic_id=broker.hosted().topic_id, **options)
    return broker.send_frame(broker.frame(request, VERSION), connection)


def answer(broker: TieredBroker, exchange: FakeExchange) -> Any:
    request = fetch(0, topic_id=broker.hosted().topic_id)
    return broker.response(exchange, request, VERSION).responses[0].partitions[0]


def bases(data: Any) -> list[int]:
    return [batch.base_offset for batch in split_batches(memoryview(bytes(data.records)))]


def test_a_consumer_reads_from_the_store_and_over_the_border_each_record_once(broker: TieredBroker) -> None:
    seen: list[int] = []
    while len(seen) < 8:
        data = asked(broker, len(seen), partition_bytes_max=300)
        assert (data.error_code, data.high_watermark, data.log_start_offset) == (0, 8, 0)
        seen += bases(data)
    assert seen == list(range(8))
    assert broker.store.asked > 1


def test_a_parked_fetch_waits_for_the_store_and_not_for_more_bytes(broker: TieredBroker) -> None:
    assert bases(asked(broker, 0, max_wait_ms=60_000, min_bytes=1, partition_bytes_max=100)) == [0]


def test_a_remote_read_is_not_asked_for_again_to_wait_for_more_bytes(broker: TieredBroker) -> None:
    data = asked(broker, 0, max_wait_ms=60_000, min_bytes=1 << 22, partition_bytes_max=100)
    assert bases(data) == [0]
    assert broker.store.asked == 1


def test_a_follower_below_the_local_start_is_told_so_with_the_leaders_ends(broker: TieredBroker) -> None:
    broker.metadata.change_partition("t", partition_image(replicas=(1, 2), isr=(1,)))
    broker.runtime.run_turn()
    data = asked(broker, 3, max_wait_ms=500, replica_state=ReplicaState(replica_id=2, replica_epoch=-1))
    assert data.error_code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
    assert (data.high_watermark, data.log_start_offset, bytes(data.records)) == (8, 0, b"")
    assert broker.store.asked == 0


def test_a_store_that_fails_costs_the_request_and_not_the_partition(broker: TieredBroker) -> None:
    broker.store.fails = True
    assert asked(broker, 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.hosted().closed is None
    broker.store.fails = False
    assert bases(asked(broker, 0))[0] == 0


def test_a_store_that_hangs_holds_a_fetch_no_longer_than_the_log_promises(broker: TieredBroker) -> None:
    broker.store.hangs = True
    exchange = begun(broker, 0)
    broker.runtime.advance(broker.tiering.wait_ms - 1)
    assert not exchange.settled
    broker.runtime.advance(2)
    data = answer(broker, exchange)
    assert (data.error_code, bytes(data.records)) == (0, b"")


@pytest.mark.parametrize("max_wait_ms", [0, 60_000])
def test_a_client_that_goes_away_gives_up_its_remote_read(broker: TieredBroker, max_wait_ms: int) -> None:
    broker.store.hangs = True
    connection = broker.connect()
    exchange = begun(broker, 0, connection, max_wait_ms=max_wait_ms)
    assert (exchange.settled, broker.store.given_up) == (False, 0)
    broker.broker.connection_handler("broker").closed(cast("Any", connection), "reset")
    assert (exchange.settled, broker.store.given_up) == (True, 1)


def test_an_answered_client_that_goes_away_gives_up_nothing(broker: TieredBroker) -> None:
    connection = broker.connect()
    begun(broker, 0, connection)
    broker.runtime.advance(20)
    assert connection.state.when_gone is None
    broker.broker.connection_handler("broker").closed(cast("Any", connection), "reset")
    assert broker.store.given_up == 0


def test_aborted_transactions_of_remote_segments_come_with_the_read() -> None:
    broker = TieredBroker(TIERED)
    hosted = broker.hosted()
    for producer_id in (11, 12):
        hosted.place(data_batch(0, producer_id, 0, 0, 2, transactional=True), 1, Nobody())
        hosted.place(marker(0, producer_id, 0, committed=producer_id == 12), 1, Nobody())
        broker.runtime.run_turn()
    broker.append(4)
    broker.moved_away(6)
    assert broker.log_now.local_log_start_offset >= 5
    assert len(hosted.state.aborted) == 0, "the local segments have none"
    data = asked(broker, 0, isolation_level=1)
    assert [(one.producer_id, one.first_offset) for one in data.aborted_transactions] == [(11, 0)]
    data = asked(broker, 7, isolation_level=1)
    assert data.aborted_transactions == []


def test_a_replica_that_follows_serves_consumers_from_the_store_too() -> None:
    cluster = Cluster(2, RemoteStore())
    cluster.append(20)
    for _ in range(10):
        cluster.append(2)
    cluster.settle()
    follower = cluster.replicas[2]
    tiered_log(cluster.leader.log).copy()
    follower.log.drop_segments(30)
    follower.partition.log_start_moved()
    assert follower.partition.tiered is not None
    assert follower.partition.tiered.local_log_start_offset > 0
    one = PartitionRead(FetchPartition("topic", 0, 0, 1 << 20))
    hosted = SimpleNamespace(generation=0, find=lambda name, index: follower.partition)
    context = SimpleNamespace(authorize=lambda *_: True)
    reader = Reader(
        cast("Any", SimpleNamespace(hosted=hosted)),
        cast("Any", context),
        replica_id=-1,
        replica_epoch=-1,
        read_committed=False,
        bytes_min=1,
        bytes_max=1 << 20,
        leader_only=False,
    )
    one.run(reader, 1 << 20, minimum_one_batch=True)
    assert one.cold is not None
    follower.node.runtime.advance(20)
    one.settle()
    assert one.read is not None
    assert one.read.size_bytes > 0


def test_an_aborted_transaction_that_the_store_and_the_local_index_know_is_told_once() -> None:
    broker = TieredBroker(TIERED)
    hosted = broker.hosted()
    hosted.place(data_batch(0, 11, 0, 0, 2, transactional=True), 1, Nobody())
    broker.runtime.run_turn()
    broker.append(4)
    hosted.place(marker(0, 11, 0, committed=False), 1, Nobody())
    broker.runtime.run_turn()
    broker.append(4)
    broker.moved_away(3)
    assert len(hosted.state.aborted) == 1
    data = asked(broker, 0, isolation_level=1)
    assert [(entry.producer_id, entry.first_offset) for entry in data.aborted_transactions] == [(11, 0)]
