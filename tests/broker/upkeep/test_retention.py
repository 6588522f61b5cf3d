"""What is done now and then: retention, checkpoints, forgetting producers."""

from __future__ import annotations

from typing import Any

import pytest

from blumfeld.broker.replicas.partition import Partition
from blumfeld.broker.upkeep import retention as upkeep
from blumfeld.broker.upkeep.retention import retain
from blumfeld.wire.errors import ErrorCode
from blumfeld_kit.fakes.runtime import EPOCH_MS
from tests.broker.batches import batch, fetch
from tests.broker.harness import BrokerHarness, Succeeding
from tests.broker.replicas.test_partition import DAY_MS, sequence
from tests.log.batches import data_batch, marker


@pytest.fixture
def broker() -> BrokerHarness:
    return BrokerHarness(partitions=1)


def test_retention_deletes_sealed_segments_that_are_too_old(broker: BrokerHarness) -> None:
    log = broker.log_of("t")
    for days in (9, 8, 1):
        broker.produced(batch(timestamp=EPOCH_MS - days * DAY_MS))
        log.roll()
    broker.produced()
    broker.runtime.advance(29_999)
    assert log.log_start_offset == 0, "log.initial.task.delay.ms"
    broker.runtime.advance(1)
    assert log.log_start_offset == 2
    assert list(broker.hosted().state.epochs.entries) == [(0, 2)]
    answer = broker.ask(fetch(0), 12)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_old_active_segment_is_rolled_and_deleted(broker: BrokerHarness) -> None:
    broker.produced(batch(timestamp=EPOCH_MS - 9 * DAY_MS))
    assert retain(broker.hosted(), broker.runtime.now_ms()) == 1
    assert broker.log_of("t").log_start_offset == 1


def test_idle_producers_are_forgotten(broker: BrokerHarness) -> None:
    broker.produced(sequence(0))
    broker.runtime.advance(DAY_MS + 600_001)
    assert len(broker.hosted().state.producers) == 0
    assert broker.produced(sequence(70)) == ErrorCode.NONE


def test_retention_comes_again_at_its_interval(broker: BrokerHarness) -> None:
    broker.runtime.advance(30_000)
    broker.produced(batch(timestamp=EPOCH_MS - 9 * DAY_MS))
    broker.runtime.advance(299_999)
    assert broker.log_of("t").log_start_offset == 0
    broker.runtime.advance(1)
    assert broker.log_of("t").log_start_offset == 1


@pytest.mark.parametrize(
    ("config", "dropped"),
    [
        ({"retention_ms": "-1"}, 0),
        ({"cleanup_policy": "compact"}, 0),
        ({"cleanup_policy": "compact,delete", "retention_ms": "1000"}, 1),
    ],
    ids=["without limit", "compact", "compact and delete"],
)
def test_whether_what_is_old_goes_is_the_topics_word(
    broker: BrokerHarness, config: dict[str, Any], dropped: int
) -> None:
    broker.create_topic("old", **config)
    broker.produced(batch(timestamp=5), topic="old")
    assert retain(broker.hosted("old"), broker.runtime.now_ms()) == dropped


def test_a_compacted_topic_loses_what_is_below_its_log_start(broker: BrokerHarness) -> None:
    broker.create_topic("compacted", cleanup_policy="compact")
    for _ in range(2):
        broker.produced(batch(timestamp=5), topic="compacted")
        broker.log_of("compacted").roll()
    broker.hosted("compacted").advance_log_start(1)
    assert retain(broker.hosted("compacted"), broker.runtime.now_ms()) == 1


def test_size_counts_on_the_whole_log(broker: BrokerHarness) -> None:
    size = len(batch())
    broker.create_topic("small", retention_bytes=str(2 * size), retention_ms="-1")
    for _ in range(4):
        broker.produced(topic="small")
        broker.log_of("small").roll()
    assert retain(broker.hosted("small"), broker.runtime.now_ms()) == 2
    assert broker.log_of("small").log_start_offset == 2


def test_what_is_not_committed_is_not_deleted(broker: BrokerHarness) -> None:
    broker.produced(batch(timestamp=5))
    broker.leader().high_watermark = 0
    assert retain(broker.hosted(), broker.runtime.now_ms()) == 0


def test_a_producer_of_old_records_is_forgotten_at_start_too(broker: BrokerHarness) -> None:
    """Time is counted on its records, as in Kafka: not on when this node heard of it."""
    old = batch(producer_id=4, producer_epoch=0, base_sequence=0, timestamp=EPOCH_MS - 2 * DAY_MS)
    broker.produced(old)
    assert len(broker.hosted().state.producers) == 1
    again = broker.restarted()
    assert len(again.hosted().state.producers) == 0
    assert again.produced(sequence(70)) == ErrorCode.NONE


def test_a_producer_with_an_open_transaction_is_never_forgotten(broker: BrokerHarness) -> None:
    partition = broker.hosted()
    partition.place(data_batch(0, 9, 0, 0, transactional=True, timestamp_ms=5), 1, Succeeding())
    broker.runtime.advance(600_000)
    assert partition.state.producers.expire(broker.runtime.now_ms() + DAY_MS, DAY_MS) == 0
    partition.place(marker(0, 9, 0, committed=True, timestamp_ms=5), 1, Succeeding())
    broker.runtime.advance(600_000)
    assert partition.state.producers.expire(broker.runtime.now_ms() + DAY_MS, DAY_MS) == 1


def test_what_was_aborted_is_in_the_index_at_the_next_checkpoint(broker: BrokerHarness) -> None:
    partition = broker.hosted()
    partition.place(data_batch(0, 9, 0, 0, transactional=True), 1, Succeeding())
    partition.place(marker(0, 9, 0, committed=False), 1, Succeeding())
    broker.runtime.run_turn()
    assert f"{0:020d}.txnindex" not in broker.log_of("t").aux.files
    broker.runtime.advance(5_000)
    assert f"{0:020d}.txnindex" in broker.log_of("t").aux.files


def test_retention_looks_at_one_partition_in_a_turn_of_virtual_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 of them would hold the loop up for a second; each is looked at once in a round."""
    broker = BrokerHarness()
    broker.create_topic("many", 9)
    looked: list[int] = []
    in_a_turn: list[int] = []

    def look(partition: Partition, _now_ms: int) -> int:
        broker.runtime.call_later(0, lambda: in_a_turn.append(len(looked)))
        looked.append(partition.partition.partition)
        return 0

    monkeypatch.setattr(upkeep, "retain", look)
    broker.broker._upkeep.retain()
    broker.runtime.advance(1)
    assert in_a_turn == list(range(1, 10)), "others had their turn"
    assert sorted(looked) == list(range(9))
