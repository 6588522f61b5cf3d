"""What plug-ins may ask of the partitions that this node leads."""

from __future__ import annotations

import pytest

from blumfeld.spi.completion import Completion
from blumfeld.spi.parts import join
from blumfeld.spi.storage import LogRead, TopicPartition
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.errors import BrokerError, ErrorCode
from tests.broker.batches import batch
from tests.broker.harness import BrokerHarness, failing, refusal
from tests.log.batches import data_batch

AT = TopicPartition("t", 0)


class Watcher:
    """Both kinds of watcher: counts."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def moved(self) -> None:
        self.calls.append("moved")

    def changed(self) -> None:
        self.calls.append("changed")

    def leads(self, partition: TopicPartition, topic_id: bytes, leader_epoch: int) -> None:
        self.calls.append(f"{partition} leads in {leader_epoch}")

    def lost(self, partition: TopicPartition) -> None:
        self.calls.append(f"{partition} lost")


@pytest.fixture
def broker() -> BrokerHarness:
    return BrokerHarness(partitions=1)


def append(broker: BrokerHarness, leader_epoch: int = 0) -> Completion[int]:
    made = RecordBatch(memoryview(batch(b"one", b"two")))
    return broker.broker.local_partitions.append(AT, made, leader_epoch)


def test_an_append_completes_when_it_is_committed(broker: BrokerHarness) -> None:
    broker.change_partition(replicas=(1, 2))
    done = append(broker)
    broker.runtime.run_turn()
    assert not done.done
    broker.leader().follower_fetched(2, 1, 2, 0)
    broker.runtime.run_turn()
    assert done.result() == 0
    ends = broker.broker.local_partitions.ends(AT)
    assert (ends.log_start_offset, ends.last_stable_offset, ends.high_watermark, ends.log_end_offset) == (
        0,
        2,
        2,
        2,
    )
    assert (ends.leader_epoch, ends.topic_id) == (0, b"t" + b"-" * 15)


def test_an_append_whose_leadership_goes_fails(broker: BrokerHarness) -> None:
    broker.change_partition(replicas=(1, 2))
    done = append(broker)
    broker.change_partition(replicas=(1, 2), leader=-1, epoch=1)
    broker.runtime.run_turn()
    assert isinstance(done.error, BrokerError)
    assert done.error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("epoch", "wanted"),
    [
        (2, ErrorCode.FENCED_LEADER_EPOCH),
        (4, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (-1, ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_an_append_names_the_leader_epoch(broker: BrokerHarness, epoch: int, wanted: ErrorCode) -> None:
    broker.change_partition(epoch=3)
    with refusal(wanted):
        append(broker, epoch)
    assert append(broker, 3)


def test_a_batch_is_checked_as_a_producers(broker: BrokerHarness) -> None:
    bad = batch()
    bad[-1] ^= 1
    with refusal(ErrorCode.CORRUPT_MESSAGE):
        broker.broker.local_partitions.append(AT, RecordBatch(memoryview(bad)), 0)


@pytest.mark.parametrize(
    ("topic", "wanted"),
    [("t", ErrorCode.NOT_LEADER_OR_FOLLOWER), ("u", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
)
def test_what_this_node_does_not_lead_is_an_error(
    broker: BrokerHarness, topic: str, wanted: ErrorCode
) -> None:
    broker.change_partition(replicas=(1, 2), leader=-1, epoch=1)
    local, at = broker.broker.local_partitions, TopicPartition(topic, 0)
    calls = (
        lambda: local.ends(at),
        lambda: local.append(at, RecordBatch(memoryview(batch())), 0),
        lambda: local.read(at, 0, 100, read_committed=False),
        lambda: local.watch(at, Watcher(), log_end=True),
    )
    for call in calls:
        with refusal(wanted):
            call()
    local.unwatch(at, Watcher(), log_end=True)


def test_reads_end_at_the_high_watermark_or_the_last_stable_offset(broker: BrokerHarness) -> None:
    local = broker.broker.local_partitions
    broker.produced()
    open_one = data_batch(0, 7, 0, 0, transactional=True)
    local.append(AT, open_one, 0)
    broker.runtime.run_turn()
    for read_committed, end in ((False, 2), (True, 1)):
        read = local.read(AT, 0, 1 << 20, read_committed=read_committed)
        assert isinstance(read, LogRead)
        assert read.end_offset == end
        assert join(read.parts)
    at_end = local.read(AT, 1, 1 << 20, read_committed=True)
    assert at_end == LogRead([], 0, 1)


@pytest.mark.parametrize("offset", [-1, 5])
def test_an_offset_out_of_range_is_an_error(broker: BrokerHarness, offset: int) -> None:
    with refusal(ErrorCode.OFFSET_OUT_OF_RANGE):
        broker.broker.local_partitions.read(AT, offset, 100, read_committed=False)


def test_ends_are_watched(broker: BrokerHarness) -> None:
    local = broker.broker.local_partitions
    broker.change_partition(replicas=(1, 2))
    end, committed = Watcher(), Watcher()
    local.watch(AT, end, log_end=True)
    local.watch(AT, committed, log_end=False)
    broker.runtime.run_turn()
    end.calls.clear()
    committed.calls.clear()
    append(broker)
    broker.runtime.run_turn()
    assert (end.calls, committed.calls) == (["moved"], [])
    broker.leader().follower_fetched(2, 1, 2, 0)
    broker.runtime.run_turn()
    assert committed.calls == ["moved"]
    local.unwatch(AT, end, log_end=True)
    broker.metadata.delete_topic("t")
    broker.runtime.run_turn()
    assert end.calls == ["moved"]
    assert committed.calls == ["moved", "changed"]


def test_leadership_is_watched(broker: BrokerHarness) -> None:
    watcher, later = Watcher(), Watcher()
    local = broker.broker.local_partitions
    local.watch_leadership(watcher)
    assert watcher.calls == ["t-0 leads in 0"]
    broker.change_partition(epoch=3)
    broker.change_partition(epoch=3, partition_epoch=2)
    broker.change_partition(epoch=4, leader=-1)
    broker.change_partition(epoch=5)
    broker.create_topic("u")
    local.watch_leadership(later)
    broker.metadata.delete_topic("t")
    broker.hosted("u").fail(OSError(5, "input/output error"))
    assert watcher.calls[1:] == [
        "t-0 leads in 3",
        "t-0 lost",
        "t-0 leads in 5",
        "u-0 leads in 0",
        "t-0 lost",
        "u-0 lost",
    ]
    assert later.calls == ["t-0 leads in 5", "u-0 leads in 0", "t-0 lost", "u-0 lost"]


@pytest.mark.parametrize("log_end", [True, False])
def test_a_watcher_that_raises_takes_nothing_from_the_others(broker: BrokerHarness, log_end: bool) -> None:
    """Parked fetches of clients are watchers, too."""
    local, bad, good = broker.broker.local_partitions, Watcher(), Watcher()
    bad.moved = bad.changed = failing(RuntimeError("a defect of a plug-in"))  # type: ignore[method-assign]
    local.watch(AT, bad, log_end=log_end)
    local.watch(AT, good, log_end=log_end)
    append(broker)
    broker.runtime.loop.run_ready()
    broker.change_partition(epoch=3)
    broker.runtime.loop.run_ready()
    assert [str(error) for _, error in broker.runtime.defects] == ["a defect of a plug-in"] * 2, (
        "each is logged"
    )
    assert good.calls == ["moved", "changed"]


def test_a_watcher_of_leadership_that_raises_takes_nothing_from_the_others(broker: BrokerHarness) -> None:
    local, bad, good = broker.broker.local_partitions, Watcher(), Watcher()
    local.watch_leadership(bad)
    local.watch_leadership(good)
    bad.leads = bad.lost = failing(RuntimeError("a defect of a plug-in"))  # type: ignore[method-assign]
    broker.change_partition(epoch=3)
    broker.metadata.delete_topic("t")
    assert good.calls == ["t-0 leads in 0", "t-0 leads in 3", "t-0 lost"]
    assert broker.broker.partitions.find("t", 0) is None
    assert [event[1] for event in broker.log.events].count("a watcher of leadership failed") == 2
