"""The contract of a storage, on the ring; and what makes it a ring."""

from __future__ import annotations

import pytest
from acme_storage_ring.plugin import Options, RingStorage

from blumfeld.config.values import TopicConfig
from blumfeld.spi.storage import LogStorage, TopicPartition
from blumfeld_kit import StorageContract
from blumfeld_kit.fakes import FakeRuntime
from blumfeld_kit.storage_driver import Log, Node, make_batch

RING_BYTES = 4096
BATCH_BYTES = 200


class TestRingStorage(StorageContract):
    """All that every storage must hold; the ring is larger than any of these tests."""

    def make_storage(self, runtime: FakeRuntime) -> LogStorage:
        """A fresh one."""
        return RingStorage(runtime, Options(bytes_per_partition_max=1 << 30))


def make_ring() -> Node:
    """A node with a small ring."""
    options = Options(bytes_per_partition_max=RING_BYTES)
    return Node(lambda _: FakeRuntime(1), lambda runtime: RingStorage(runtime, options)).start()


def fill(log: Log, batches: int) -> None:
    """Write so many batches, each in a turn of its own."""
    for n in range(batches):
        log.append(make_batch(1, value_bytes=BATCH_BYTES, seed=n))


def test_it_holds_no_more_than_its_limit() -> None:
    log = make_ring().open()
    fill(log, 200)
    assert RING_BYTES // 2 < log.log.size_bytes() <= RING_BYTES


def test_the_newest_stay_and_the_oldest_fall_off_whole() -> None:
    log = make_ring().open()
    fill(log, 200)
    start = log.log.log_start_offset
    assert 0 < start < 200
    assert log.log.segments()[0].base_offset == start
    assert log.spans() == [(offset, offset + 1) for offset in range(start, 200)]


def test_a_slow_reader_is_told_that_its_offset_is_gone() -> None:
    log = make_ring().open()
    fill(log, 200)
    with pytest.raises(LookupError):
        log.read_raw(0)


def test_topics_of_the_broker_itself_are_kept_whole() -> None:
    node = make_ring()
    log = node.open(TopicPartition("__consumer_offsets", 0))
    fill(log, 200)
    assert log.log.log_start_offset == 0
    assert len(log.spans()) == 200


def test_a_batch_larger_than_the_ring_is_kept_alone() -> None:
    log = make_ring().open()
    fill(log, 10)
    log.append(make_batch(1, value_bytes=3 * RING_BYTES))
    assert log.spans() == [(10, 11)]


def test_a_topic_may_roll_sooner() -> None:
    log = make_ring().open(segment_bytes=500)
    fill(log, 3)
    assert len(log.log.segments()) == 3
    log.log.reconfigure(TopicConfig({}))
