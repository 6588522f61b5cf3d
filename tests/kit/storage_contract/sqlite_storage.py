"""A storage in SQLite, which does its own I/O, and liars made of it. Only what the kit's deaths on a real disk need."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from blumfeld.config.values import TopicConfig
from blumfeld.spi.completion import Completion
from blumfeld.spi.storage import (
    AuxFiles,
    LogDirInfo,
    LogListener,
    LogRead,
    LogStorage,
    TopicPartition,
    WriteOutcome,
)
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.storage_contract import StorageContract

DIRECTORY_ID = b"s" * 16
TABLES = """
create table if not exists logs (name text primary key);
create table if not exists batches (log text, base integer, next integer, data blob, primary key (log, base));
create table if not exists aux (log text, name text, data blob, primary key (log, name));
create table if not exists marks (name text primary key, mark integer);
"""


def refused(error: sqlite3.Error) -> OSError:
    """SQLite's errors, as the contract has them."""
    return OSError(errno.EIO, str(error))


class SqliteAux:
    """``AuxFiles`` in a table."""

    def __init__(self, log: SqliteLog) -> None:
        self._log = log

    def names(self) -> list[str]:
        rows = self._log.database.execute("select name from aux where log = ?", (self._log.name,))
        return sorted(name for (name,) in rows)

    def read(self, name: str) -> bytes | None:
        select = "select data from aux where log = ? and name = ?"
        row = self._log.database.execute(select, (self._log.name, name)).fetchone()
        return None if row is None else bytes(row[0])

    def write(self, name: str, data: bytes) -> None:
        self._log.change([("insert or replace into aux values (?, ?, ?)", (self._log.name, name, data))])

    write_unsynced = write

    def delete(self, name: str) -> None:
        self._log.change([("delete from aux where log = ? and name = ?", (self._log.name, name))])


class SqliteLog:
    """One log. ``commit`` after each write; ``synchronous=full`` makes each commit last."""

    log_start_offset = 0
    says_flushed = False

    def __init__(self, storage: SqliteStorage, name: str) -> None:
        self.database, self.name = storage.database, name
        self.directory_id = DIRECTORY_ID
        self.aux: AuxFiles = SqliteAux(self)
        (end,) = self._one("select coalesce(max(next), 0) from batches where log = ?")
        self.placed_end_offset = self.written_end_offset = self.flushed_end_offset = int(end)
        self._storage = storage
        self._placed: list[RecordBatch] = []

    def _one(self, select: str) -> Any:
        return self.database.execute(select, (self.name,)).fetchone()

    def change(self, statements: Sequence[tuple[str, tuple[Any, ...]]]) -> None:
        """One transaction."""
        try:
            for statement, values in statements:
                self.database.execute(statement, values)
            self._storage.commit()
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):
                self.database.rollback()
            raise refused(error) from error

    def place(self, batch: RecordBatch, leader_epoch: int) -> int:
        base_offset = self.placed_end_offset
        batch.assign_offset(base_offset, leader_epoch)
        self._placed.append(batch)
        self.placed_end_offset = batch.next_offset
        return base_offset

    def write(self, done: Callable[[WriteOutcome], None]) -> None:
        placed, self._placed = self._placed, []
        insert = "insert into batches values (?, ?, ?, ?)"
        try:
            self.change([(insert, (self.name, b.base_offset, b.next_offset, bytes(b.data))) for b in placed])
        except OSError as error:
            self.placed_end_offset = self.written_end_offset
            done(WriteOutcome(self.written_end_offset, error))
            return
        self.written_end_offset = self.placed_end_offset
        if self.says_flushed:
            self.flushed_end_offset = self.written_end_offset
        done(WriteOutcome(self.written_end_offset))

    def flush(self) -> Completion[int]:
        self._storage.sync()
        self.flushed_end_offset = self.written_end_offset
        return Completion.of(self.flushed_end_offset)

    def read(self, offset: int, bytes_max: int, end_offset: int, minimum_one_batch: bool) -> LogRead:
        read = LogRead([], 0, offset)
        for batch in self.batches(offset):
            if batch.next_offset > end_offset or (read.parts and read.size_bytes >= bytes_max):
                break
            read.parts.append(bytes(batch.data))
            read.size_bytes += batch.size_bytes
            read.end_offset = batch.next_offset
        return read

    def batches(self, offset: int) -> Iterator[RecordBatch]:
        select = "select data from batches where log = ? and next > ? order by base"
        rows = self.database.execute(select, (self.name, offset))
        for (data,) in rows.fetchall():
            yield RecordBatch(memoryview(bytearray(data)))

    def size_bytes(self) -> int:
        (size,) = self._one("select coalesce(sum(length(data)), 0) from batches where log = ?")
        return int(size)

    def close(self) -> None:
        self._placed = []

    def _never(self, *_: Any) -> Any:
        raise NotImplementedError

    place_as_is = offset_for_time = max_timestamp = truncate_to = truncate_fully = _never
    advance_log_start = reconfigure = _never


class SqliteStorage:
    """Honest: what is acknowledged is committed, and what is committed is synced."""

    compacts = False
    log_class = SqliteLog
    synchronous = "full"

    def __init__(self, runtime: FakeRuntime, directory: str) -> None:
        self._path = f"{directory}/records.db"
        self.database: sqlite3.Connection

    def commit(self) -> None:
        self.database.commit()

    def sync(self) -> None:
        """Every commit was synced."""

    def promise(self) -> str:
        return f"committed, synchronous={self.synchronous}"

    async def start(self, cluster_id: str, node_id: int) -> None:
        self.database = sqlite3.connect(self._path)
        self.database.executescript(f"pragma synchronous={self.synchronous};{TABLES}")

    def log_dirs(self) -> Sequence[LogDirInfo]:
        return [LogDirInfo(path=self._path, directory_id=DIRECTORY_ID, online=True)]

    async def open_log(
        self,
        partition: TopicPartition,
        topic_id: bytes,
        config: TopicConfig,
        listener: LogListener,
        *,
        directory_id: bytes | None = None,
    ) -> SqliteLog:
        name = str(partition)
        log = self.log_class(self, name)
        log.change([("insert or ignore into logs values (?)", (name,))])
        return log

    def delete_log(self, partition: TopicPartition) -> None:
        for table, column in (("batches", "log"), ("aux", "log"), ("logs", "name")):
            self.database.execute(f"delete from {table} where {column} = ?", (str(partition),))
        self.commit()

    def partitions(self) -> Sequence[tuple[TopicPartition, bytes]]:
        rows = self.database.execute("select name from logs").fetchall()
        parts = [name.rpartition("-") for (name,) in rows]
        return [(TopicPartition(topic, int(number)), bytes(16)) for topic, _, number in parts]

    def set_aside_log(self, partition: TopicPartition) -> None:
        raise NotImplementedError

    def checkpoint(self, high_watermarks: Iterable[tuple[TopicPartition, int]]) -> None:
        marks = [(str(partition), mark) for partition, mark in high_watermarks]
        self.database.executemany("insert or replace into marks values (?, ?)", marks)
        self.commit()

    def high_watermarks(self) -> dict[TopicPartition, int]:
        rows = self.database.execute("select name, mark from marks").fetchall()
        parts = [(*name.rpartition("-"), mark) for name, mark in rows]
        return {TopicPartition(topic, int(number)): mark for topic, _, number, mark in parts}

    def previous_broker_epoch(self) -> int:
        return -1

    async def stop(self, broker_epoch: int) -> None:
        self.database.commit()
        self.database.close()


class OneTransaction(SqliteStorage):
    """Keeps everything in one open transaction until it is stopped."""

    def commit(self) -> None:
        return None


class FlushesNothing(SqliteStorage):
    """Commits, and never syncs: not with a commit, and not when it is asked to flush."""

    synchronous = "off"


class SwallowingLog(SqliteLog):
    """Takes what could not be written for written."""

    def _one(self, select: str) -> Any:
        return self.database.execute(select, (self.name,)).fetchone()

    def change(self, statements: Sequence[tuple[str, tuple[Any, ...]]]) -> None:
        with suppress(OSError):
            super().change(statements)


class SwallowsErrors(SqliteStorage):
    """Says that a write was done when SQLite said that it was not."""

    log_class = SwallowingLog


class SwapsPartitions(SqliteStorage):
    """A start takes the logs of two partitions for each other."""

    async def open_log(self, partition: TopicPartition, *rest: Any, **named: Any) -> SqliteLog:
        (lives,) = self.database.execute("pragma user_version").fetchone()
        if partition.topic == "topic" and lives % 2:
            partition = TopicPartition("topic", 1 - partition.partition)
        return await super().open_log(partition, *rest, **named)

    async def start(self, cluster_id: str, node_id: int) -> None:
        await super().start(cluster_id, node_id)
        (lives,) = self.database.execute("pragma user_version").fetchone()
        self.database.execute(f"pragma user_version={lives + 1}")


class LosesSmallFiles(SqliteStorage):
    """A start keeps no small file."""

    async def start(self, cluster_id: str, node_id: int) -> None:
        await super().start(cluster_id, node_id)
        self.database.execute("delete from aux")
        self.database.commit()


class LagsBehind(SqliteStorage):
    """Writes the high watermarks of the checkpoint before, and forgets a deleted log until the next start."""

    before: Sequence[tuple[TopicPartition, int]] = ()

    def checkpoint(self, high_watermarks: Iterable[tuple[TopicPartition, int]]) -> None:
        before, self.before = self.before, list(high_watermarks)
        super().checkpoint(before)

    def delete_log(self, partition: TopicPartition) -> None:
        pass


class SaysFlushed(FlushesNothing):
    """Syncs when it is asked to flush, but counts everything as flushed as soon as it is written."""

    async def open_log(self, *rest: Any, **named: Any) -> SqliteLog:
        log = await super().open_log(*rest, **named)
        log.says_flushed = True
        return log

    def sync(self) -> None:
        fd = os.open(self._path, os.O_RDWR)
        os.fsync(fd)
        os.close(fd)


class HonestKit(StorageContract):
    """Its class is imported by the processes that die. Not collected: a test calls its tests."""

    __test__ = False
    survives_restart = True
    storage: type[SqliteStorage] = SqliteStorage

    def make_storage_in(self, runtime: FakeRuntime, directory: str) -> LogStorage:
        return self.storage(runtime, directory)


class OneTransactionKit(HonestKit):
    storage = OneTransaction


class FlushesNothingKit(HonestKit):
    storage = FlushesNothing


class SwallowsErrorsKit(HonestKit):
    storage = SwallowsErrors


class SwapsPartitionsKit(HonestKit):
    storage = SwapsPartitions


class LosesSmallFilesKit(HonestKit):
    storage = LosesSmallFiles


class LagsBehindKit(HonestKit):
    storage = LagsBehind


class SaysFlushedKit(HonestKit):
    storage = SaysFlushed
