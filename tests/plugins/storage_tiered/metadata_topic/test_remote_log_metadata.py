"""Remote log metadata on one node: real partitions, virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, cast

import pytest
from msgspec.structs import replace

from blumfeld.spi.cluster import ImageDelta
from blumfeld.spi.internal_topics import REMOTE_LOG_METADATA_TOPIC
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.create_topics import CreateTopicsRequest
from blumfeld_storage_tiered.catalog.catalog import IllegalTransitionError, UnknownSegmentError
from blumfeld_storage_tiered.catalog.records import encode_change, metadata_partition
from blumfeld_storage_tiered.catalog.segment import Change, SegmentState, TopicIdPartition
from blumfeld_storage_tiered.metadata_topic.remote_log_metadata import APPEND_TIMEOUT_MS, RemoteLogMetadata
from blumfeld_storage_tiered.metadata_topic.topic import MetadataTopicSettings
from tests.broker.harness import NODE, BrokerHarness
from tests.plugins.storage_tiered.catalog.history import AT, entries_of, remote_segment, update

COUNT = 3
SETTINGS = MetadataTopicSettings(num_partitions=COUNT)
INDEX = metadata_partition(AT, COUNT)
META = TopicPartition(REMOTE_LOG_METADATA_TOPIC, INDEX)
LOG = [0] * 100
EPOCHS = entries_of(LOG)
SEGMENT = remote_segment(LOG, 0, 100, 1)
FINISHED = update(SEGMENT, SegmentState.COPY_FINISHED)


class OneNode:
    """A broker, and the metadata that runs on it."""

    made: ClassVar[list[OneNode]] = []

    def __init__(self, broker: BrokerHarness | None = None) -> None:
        self.made.append(self)
        self.broker = broker or BrokerHarness()
        parts = cast("Any", self.broker.composition)
        parts.local_partitions = self.broker.broker.local_partitions
        parts.peers = self.broker.broker.peers
        parts.data_dirs = ("/data",)
        self.metadata = RemoteLogMetadata(parts, SETTINGS, "/data/remote-log-metadata")

    def start(self) -> OneNode:
        self.broker.runtime.run(self.metadata.start())
        return self

    def stop(self) -> None:
        self.broker.runtime.run(self.metadata.stop())

    def settle(self, ms: float = 2_000) -> None:
        self.broker.runtime.advance(ms)

    def append(self, *changes: Change) -> None:
        for change in changes:
            done = self.metadata.append(change)
            self.settle()
            done.result()

    def serves(self) -> bool:
        return self.metadata.catalog(AT).find(50, EPOCHS) is not None


@pytest.fixture(autouse=True)
def stopped_nodes() -> Iterator[None]:
    yield
    while OneNode.made:
        OneNode.made.pop().stop()


@pytest.fixture
def node() -> OneNode:
    started = OneNode().start()
    started.metadata.assign(AT)
    started.settle()
    return started


def test_the_topic_is_made_as_kafka_makes_it_and_flushed(node: OneNode) -> None:
    [request] = node.broker.metadata.sent(CreateTopicsRequest)
    [topic] = request.topics
    assert (topic.name, topic.num_partitions) == (REMOTE_LOG_METADATA_TOPIC, COUNT)
    assert topic.replication_factor == 1, "there is one node"
    assert {config.name: config.value for config in topic.configs} == {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "remote.storage.enable": "false",
        "flush.messages": "1",
        "min.insync.replicas": "1",
    }


def test_in_a_cluster_the_topic_waits_for_brokers_for_all_replicas() -> None:
    node = OneNode(BrokerHarness(single_node=False)).start()
    node.metadata.assign(AT)
    node.settle()
    assert node.broker.metadata.sent(CreateTopicsRequest) == []
    assert "1 of 3 are there" in str(node.broker.log.events)


def test_a_change_is_in_the_catalog_when_its_append_completes(node: OneNode) -> None:
    events: list[TopicIdPartition] = []
    node.metadata.watch(events.append)
    done = node.metadata.append(SEGMENT)
    done.when_done(lambda _: events.append(cast("Any", len(node.metadata.catalog(AT)))))
    node.settle()
    assert events == [1, AT]
    node.append(FINISHED)
    assert node.serves()


def test_a_partition_without_records_is_ready_once_its_topic_was_read(node: OneNode) -> None:
    assert node.metadata.is_ready(AT)
    assert not node.metadata.is_ready(TopicIdPartition(b"x" * 16, 0))
    with pytest.raises(KeyError):
        node.metadata.when_ready(TopicIdPartition(b"x" * 16, 0))


def test_a_partition_is_ready_when_what_a_new_leader_may_have_committed_is_read() -> None:
    """Its high watermark may be below what the leader before it had committed."""
    node = OneNode().start()
    node.broker.create_topic(REMOTE_LOG_METADATA_TOPIC, COUNT)
    node.broker.change_partition(REMOTE_LOG_METADATA_TOPIC, INDEX, replicas=(NODE, 2))
    batch = RecordBatch(memoryview(build_batch([Record(value=encode_change(SEGMENT), timestamp=1)])))
    node.broker.broker.local_partitions.append(META, batch, 0)
    node.metadata.assign(AT)
    node.settle()
    assert not node.metadata.is_ready(AT)
    node.broker.leader(REMOTE_LOG_METADATA_TOPIC, INDEX).follower_fetched(2, 1, 1, 0)
    node.settle()
    assert node.metadata.is_ready(AT)
    assert len(node.metadata.catalog(AT)) == 1


def test_a_change_that_cannot_follow_fails_its_append_and_no_other(node: OneNode) -> None:
    node.append(SEGMENT, FINISHED)
    for change, error in (
        (SEGMENT, IllegalTransitionError),
        (update(remote_segment(LOG, 0, 9, 2), SegmentState.DELETE_STARTED), UnknownSegmentError),
    ):
        done = node.metadata.append(change)
        node.settle()
        assert isinstance(done.error, error)
    assert node.serves()
    assert sum("passed over" in event for _, event, _ in node.broker.log.events) == 2


def test_a_record_that_means_nothing_is_passed_over_and_told(node: OneNode) -> None:
    local = node.broker.broker.local_partitions
    local.append(META, RecordBatch(memoryview(build_batch([Record(value=b"what?", timestamp=1)]))), 0)
    node.append(SEGMENT, FINISHED)
    assert node.serves()
    assert "passed over" in str(node.broker.log.events)


def test_the_same_change_from_two_callers_is_written_once(node: OneNode) -> None:
    both = [node.metadata.append(SEGMENT) for _ in range(2)]
    node.settle()
    assert [done.done and done.error for done in both] == [None, None]
    assert node.broker.broker.local_partitions.ends(META).log_end_offset == 1
    node.append(SEGMENT)  # again, later: it changes nothing


def test_a_lost_answer_costs_nothing_when_the_record_is_read_back(
    node: OneNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = node.broker.broker.local_partitions
    append = local.append

    def lost(*args: Any) -> Any:
        append(*args)
        raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    monkeypatch.setattr(local, "append", lost)
    node.append(SEGMENT)
    assert local.ends(META).log_end_offset == 1


def test_an_append_is_tried_again_until_its_time_is_over(
    node: OneNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def refuse(*_: Any) -> Any:
        tried.append(1)
        raise BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS)

    monkeypatch.setattr(node.broker.broker.local_partitions, "append", refuse)
    done = node.metadata.append(SEGMENT)
    node.settle(APPEND_TIMEOUT_MS - 10)
    assert not done.done
    node.settle(2_000)
    assert isinstance(done.error, BrokerError)
    assert done.error.code is ErrorCode.REQUEST_TIMED_OUT
    assert 100 < len(tried) < 130


def test_an_error_that_no_retry_mends_fails_the_append_at_once(
    node: OneNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise BrokerError(ErrorCode.MESSAGE_TOO_LARGE)

    monkeypatch.setattr(node.broker.broker.local_partitions, "append", refuse)
    done = node.metadata.append(SEGMENT)
    node.settle(0)
    assert isinstance(done.error, BrokerError)
    assert done.error.code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_partition_that_comes_later_finds_the_records_that_were_read(node: OneNode) -> None:
    other = next(
        at
        for at in (TopicIdPartition(AT.topic_id, number, "ticks") for number in range(1, 50))
        if metadata_partition(at, COUNT) == INDEX
    )
    node.metadata.assign(other)
    node.settle()
    assert node.metadata.is_ready(other)
    node.metadata.unassign(AT)
    local = node.broker.broker.local_partitions
    for change in (SEGMENT, FINISHED):
        value = encode_change(change)
        local.append(META, RecordBatch(memoryview(build_batch([Record(value=value, timestamp=1)]))), 0)
    node.settle()
    node.metadata.assign(AT)
    node.settle()
    assert node.metadata.is_ready(AT)
    assert node.serves()


def test_what_waits_fails_when_the_partition_leaves(node: OneNode, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS)

    monkeypatch.setattr(node.broker.broker.local_partitions, "append", refuse)
    done = node.metadata.append(SEGMENT)
    node.metadata.unassign(AT)
    for append in (done, node.metadata.append(SEGMENT)):
        assert isinstance(append.error, BrokerError)


def test_a_partition_stays_until_each_assignment_is_taken_back(node: OneNode) -> None:
    """A topic's deletion goes on when its log is closed."""
    node.metadata.assign(AT)
    node.metadata.unassign(AT)
    node.append(SEGMENT, FINISHED)
    node.metadata.unassign(AT)
    assert not node.metadata.is_assigned(AT)
    node.metadata.unassign(AT)  # once too often
    node.metadata.assign(AT)
    node.settle()
    assert node.serves()


# Snapshots


def restarted(node: OneNode) -> tuple[OneNode, list[int]]:
    """Metadata of the next process on the same broker, and the offsets that it reads at."""
    offsets: list[int] = []
    local = node.broker.broker.local_partitions
    read = local.read

    def noted(at: TopicPartition, offset: int, *args: Any, **kwargs: Any) -> Any:
        offsets.append(offset)
        return read(at, offset, *args, **kwargs)

    local.read = noted  # type: ignore[method-assign,assignment]
    again = OneNode(node.broker)
    again.metadata.assign(AT)
    again.start()
    again.settle()
    return again, offsets


def test_a_restart_reads_on_where_the_snapshot_ends(node: OneNode) -> None:
    node.append(SEGMENT, FINISHED)
    node.stop()
    again, offsets = restarted(node)
    assert offsets == [1], "the last batch, to see that the log still has it"
    assert again.metadata.is_ready(AT)
    assert again.serves()
    again.append(update(SEGMENT, SegmentState.DELETE_STARTED))
    assert offsets == [1, 2]
    assert not again.serves()


def test_a_snapshot_is_written_now_and_then(node: OneNode) -> None:
    node.append(SEGMENT, FINISHED)
    node.settle(61_000)
    again, offsets = restarted(node)
    assert offsets == [1]
    assert again.serves()


def test_a_snapshot_is_written_when_a_node_stops_that_has_closed_its_logs(node: OneNode) -> None:
    node.append(SEGMENT, FINISHED)
    node.metadata.unassign(AT)
    node.stop()
    again, offsets = restarted(node)
    assert offsets == [1]
    assert again.serves()


def test_a_snapshot_is_written_when_nothing_here_needs_the_metadata_any_more(node: OneNode) -> None:
    node.append(SEGMENT, FINISHED)
    node.metadata.unassign(AT)
    files, path = node.broker.runtime.files, f"/data/remote-log-metadata/partition-{INDEX}.snapshot"
    node.settle()
    assert not files.exists(path), "this node leads the metadata"
    node.broker.change_partition(REMOTE_LOG_METADATA_TOPIC, INDEX, replicas=(NODE, 2), leader=2, epoch=1)
    node.settle()
    assert files.exists(path)


def test_the_leader_of_metadata_knows_partitions_that_it_has_no_replica_of(node: OneNode) -> None:
    node.append(SEGMENT, FINISHED)
    node.metadata.unassign(AT)
    [catalog] = node.broker.runtime.run(node.metadata.led_catalogs())
    assert (catalog.partition, len(catalog)) == (AT, 1)
    node.broker.change_partition(REMOTE_LOG_METADATA_TOPIC, INDEX, replicas=(NODE, 2), leader=2, epoch=1)
    assert node.broker.runtime.run(node.metadata.led_catalogs()) == []


def flipped(data: bytes) -> bytes:
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("damage", [lambda _: b"", flipped], ids=["empty", "a flipped bit"])
def test_a_damaged_snapshot_costs_a_look_at_the_whole_topic(
    node: OneNode, damage: Callable[[bytes], bytes]
) -> None:
    node.append(SEGMENT, FINISHED)
    node.stop()
    files, path = node.broker.runtime.files, f"/data/remote-log-metadata/partition-{INDEX}.snapshot"
    files.write_atomically(path, damage(files.read_bytes(path)))
    again, offsets = restarted(node)
    assert offsets[0] == 0
    assert again.serves()
    assert "can't be used" in str(node.broker.log.events)


def test_a_snapshot_of_a_topic_that_was_made_again_is_not_used(node: OneNode) -> None:
    node.append(SEGMENT, FINISHED)
    node.stop()
    image = node.broker.metadata.image
    topic = image.topics[REMOTE_LOG_METADATA_TOPIC]
    image.topics[REMOTE_LOG_METADATA_TOPIC] = replace(topic, topic_id=b"another".ljust(16))
    _, offsets = restarted(node)
    assert offsets[0] == 0


def test_a_topic_that_was_made_again_is_read_from_its_start(node: OneNode) -> None:
    node.append(SEGMENT, FINISHED)
    cluster = node.broker.metadata
    cluster.delete_topic(REMOTE_LOG_METADATA_TOPIC)
    node.settle(0)
    assert node.serves(), "what is known stays known until another topic comes"
    cluster.create_topic(REMOTE_LOG_METADATA_TOPIC, COUNT)
    topic = cluster.image.topics[REMOTE_LOG_METADATA_TOPIC]
    cluster.image.topics[REMOTE_LOG_METADATA_TOPIC] = replace(topic, topic_id=b"another".ljust(16))
    cluster.tell(ImageDelta())
    node.settle()
    assert not node.serves()
    assert "was deleted and made again" in str(node.broker.log.events)


def test_records_that_are_gone_from_the_topic_are_read_anew_from_its_start(
    node: OneNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.append(SEGMENT, FINISHED)
    node.stop()
    local = node.broker.broker.local_partitions
    ends_of, ends = local.ends, local.ends(META)
    answers = [
        replace(ends, log_end_offset=1, high_watermark=1)
    ]  # once: an unclean election, then new records
    monkeypatch.setattr(local, "ends", lambda at: answers.pop() if answers and at == META else ends_of(at))
    again, offsets = restarted(node)
    assert offsets[0] == 0
    assert "is gone from its topic" in str(node.broker.log.events)
    assert again.metadata.is_ready(AT)


def test_a_leader_epoch_in_which_the_log_lacks_what_was_read_is_read_from_its_start(node: OneNode) -> None:
    node.append(SEGMENT, FINISHED)
    metadata = node.metadata._partitions[INDEX]
    assert metadata.last_batch is not None
    metadata.last_batch = metadata.last_batch._replace(crc=1)  # as if another record had been read there
    metadata.catalogs.clear()
    node.settle()
    assert not node.serves()
    node.broker.change_partition(REMOTE_LOG_METADATA_TOPIC, INDEX, replicas=(NODE,), leader=NODE, epoch=1)
    node.settle()
    assert node.serves()
    assert "is read from the start" in str(node.broker.log.events)


def test_a_stop_without_a_start_is_legal() -> None:
    OneNode().stop()


def test_appends_fail_when_the_node_stops() -> None:
    node = OneNode(BrokerHarness(single_node=False)).start()  # the topic never comes
    node.metadata.assign(AT)
    done = node.metadata.append(SEGMENT)
    ready = node.metadata.when_ready(AT)
    node.settle()
    node.stop()
    assert isinstance(done.error, BrokerError)
    assert not ready.done
