"""What a storage must have at first: twelve methods make it serve, and without what is optional nothing breaks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from blumfeld.broker.upkeep.retention import retain
from blumfeld.config.values import TopicConfig
from blumfeld.plugging.registry import GROUP, Registry
from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import Composition, NoOptions, hookimpl
from blumfeld.spi.storage import (
    AuxFiles,
    LogDirInfo,
    LogListener,
    LogRead,
    LogStorage,
    OffsetOutOfRangeError,
    PartitionLog,
    TopicPartition,
    WriteOutcome,
    lasting,
    segmented,
    several_directories,
)
from blumfeld.testing import EmbeddedBroker
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from blumfeld.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from blumfeld_storage_memory.small_files import MemoryAux
from campaigns.raw_connection import RawConnection

TWELVE = {
    LogStorage: {"promise", "start", "log_dirs", "open_log", "stop"},
    PartitionLog: {"place", "write", "flush", "read", "batches", "size_bytes", "close"},
}


def later(*_: Any) -> Any:
    """What a first storage may leave for tomorrow."""
    raise NotImplementedError("not written yet")


class FirstLog:
    """The log of a first storage: a list."""

    def __init__(self, directory_id: bytes) -> None:
        self.aux: AuxFiles = MemoryAux()
        self.directory_id = directory_id
        self.log_start_offset = 0
        self.placed_end_offset = self.written_end_offset = self.flushed_end_offset = 0
        self._placed: list[RecordBatch] = []
        self._batches: list[bytes] = []

    def place(self, batch: RecordBatch, leader_epoch: int) -> int:
        base_offset = self.placed_end_offset
        batch.assign_offset(base_offset, leader_epoch)
        self._placed.append(batch)
        self.placed_end_offset = batch.next_offset
        return base_offset

    def write(self, done: Callable[[WriteOutcome], None]) -> None:
        self._batches += [bytes(batch.data) for batch in self._placed]
        self._placed = []
        self.written_end_offset = self.flushed_end_offset = self.placed_end_offset
        done(WriteOutcome(self.written_end_offset))

    def flush(self) -> Completion[int]:
        return Completion.of(self.flushed_end_offset)

    def read(self, offset: int, bytes_max: int, end_offset: int, minimum_one_batch: bool) -> LogRead:
        if not self.log_start_offset <= offset <= self.written_end_offset:
            raise OffsetOutOfRangeError(offset)
        read = LogRead([], 0, offset)
        for batch in self.batches(offset):
            fits = read.size_bytes + batch.size_bytes <= bytes_max or (minimum_one_batch and not read.parts)
            if batch.next_offset > end_offset or not fits:
                break
            read.parts.append(bytes(batch.data))
            read.size_bytes += batch.size_bytes
            read.end_offset = batch.next_offset
        return read

    def batches(self, offset: int) -> Iterator[RecordBatch]:
        for data in self._batches:
            batch = RecordBatch(memoryview(data))
            if batch.next_offset > offset:
                yield batch

    def size_bytes(self) -> int:
        return sum(map(len, self._batches))

    def close(self) -> None:
        return None

    def place_as_is(self, batch: RecordBatch) -> None:
        later()

    def offset_for_time(self, timestamp_ms: int) -> Any:
        later()

    def max_timestamp(self) -> Any:
        later()

    def truncate_to(self, offset: int) -> None:
        later()

    def truncate_fully(self, start_offset: int) -> None:
        later()

    def advance_log_start(self, offset: int) -> None:
        later()

    def reconfigure(self, config: TopicConfig) -> None:
        later()


class FirstStorage:
    """It has nothing that is optional."""

    compacts = False
    log_class = FirstLog

    def promise(self) -> str:
        return "a list"

    async def start(self, cluster_id: str, node_id: int) -> None:
        return None

    def log_dirs(self) -> Sequence[LogDirInfo]:
        return [LogDirInfo(path="a list", directory_id=b"l" * 16, online=True)]

    async def open_log(
        self,
        partition: TopicPartition,
        topic_id: bytes,
        config: TopicConfig,
        listener: LogListener,
        *,
        directory_id: bytes | None = None,
    ) -> PartitionLog:
        return FirstLog(b"l" * 16)

    async def stop(self, broker_epoch: int) -> None:
        return None

    def delete_log(self, partition: TopicPartition) -> None:
        later()


class Plugin:
    """Named ``storage_first``."""

    options_class = NoOptions
    roles = ("storage",)

    @hookimpl
    def blumfeld_make_storage(self, composition: Composition) -> LogStorage:
        return FirstStorage()


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    first = EntryPoint("storage_first", "tests.broker.membership.test_first_storage:Plugin", GROUP)
    registry = Registry([*entry_points(group=GROUP), first])
    with EmbeddedBroker(storage="storage_first", registry=registry) as running:
        yield running


def test_the_twelve_are_all_that_is_not_left_for_tomorrow() -> None:
    """The page counts them: five of the storage, seven of the log."""
    for kind, protocol in ((FirstStorage, LogStorage), (FirstLog, PartitionLog)):
        methods = {name for name, member in vars(protocol).items() if callable(member) and name[0] != "_"}
        written = {name for name in methods if "later" not in getattr(kind, name).__code__.co_names}
        assert written == TWELVE[protocol]
    assert sum(map(len, TWELVE.values())) == 12
    storage = FirstStorage()
    assert lasting(storage) is None
    assert several_directories(storage) is None
    assert segmented(FirstLog(bytes(16))) is None


def test_twelve_methods_make_a_first_storage_serve(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Records go in and come out; a group commits; nothing fails on the way, nor at the stop."""
    server = {"bootstrap.servers": broker.bootstrap_servers}
    producer = Producer({**server, "acks": "all"})
    for n in range(20):
        producer.produce("first", b"%d" % n)
    assert producer.flush(20) == 0
    consumer = Consumer({**server, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["first"])
    found: list[bytes | None] = []
    while len(found) < 20:
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None, message.error()
        found.append(message.value())
    consumer.commit(asynchronous=False)
    consumer.close()
    broker.stop()
    assert found == [b"%d" % n for n in range(20)]
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_what_is_optional_is_answered_without_it(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Moves, directories, retention, checkpoints: the right errors, and no traceback."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("first", b"x")
    assert producer.flush(20) == 0
    with RawConnection(broker.bootstrap_servers) as connection:
        described = connection.ask(DescribeLogDirsRequest(topics=None), 4, DescribeLogDirsResponse)
        (directory,) = described.results
        assert (directory.error_code, directory.log_dir) == (0, "a list")
        assert "first" in [topic.name for topic in directory.topics]
        for path, code in (("a list", 0), ("/elsewhere", 57)):
            topics = [AlterReplicaLogDirTopic(name="first", partitions=[0])]
            dirs = [AlterReplicaLogDir(path=path, topics=topics)]
            moved = connection.ask(AlterReplicaLogDirsRequest(dirs=dirs), 2, AlterReplicaLogDirsResponse)
            assert moved.results[0].partitions[0].error_code == code
    inside = broker.node.broker

    def look_after() -> list[int]:
        kept: Any = inside
        kept._upkeep.checkpoint()
        return [retain(partition, 1 << 60) for partition in kept.partitions]

    assert set(broker.call(look_after)) == {0}
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
