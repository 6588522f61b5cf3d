"""Batches without Spark or decoders, and a store that fails at a chosen operation."""

from __future__ import annotations

import errno
import hashlib
import uuid
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, TypeVar

import attrs

from blumfeld_sink_spark.files import file_names
from blumfeld_sink_spark.ledger.ledger import Ledger
from blumfeld_sink_spark.ledger.publishing.publish import publish
from blumfeld_sink_spark.records import CommitRecord, OffsetRange, StagedFile, TaskResult
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.stores.contract import ArchiveStore, StoreError
from blumfeld_sink_spark.stores.roots import open_store
from tests.plugins.sink_spark.feeds import result_of, trades
from tests.plugins.sink_spark.results import task_result

T = TypeVar("T")

QUERY = "feed-1"
DAY = "2024-08-08"
TABLES = (("trades", "BTCUSDT"), ("bbo", "ETH/USDT"), ("raw", ""))


def settings_of(root: str) -> ArchiveSettings:
    return ArchiveSettings(root=root, topics=("ticks",))


@attrs.frozen
class Work:
    """A batch: the ranges that it reads, and the tables that a decoder of one version writes."""

    batch: int = 0
    ranges: tuple[OffsetRange, ...] = (OffsetRange("ticks", 0, 0, 10), OffsetRange("ticks", 1, 0, 20))
    version: int = 1
    tables: Sequence[tuple[str, str]] = TABLES
    query: str = QUERY

    def next(self, more: int = 10) -> Work:
        """Returns the batch after this one."""
        return attrs.evolve(
            self,
            batch=self.batch + 1,
            ranges=tuple(
                OffsetRange(span.topic, span.partition, span.end, span.end + more) for span in self.ranges
            ),
        )

    def stage(self, store: ArchiveStore) -> list[TaskResult]:
        """Stages files as tasks do. Range, table and decoder version alone determine their bytes."""
        return [self._task(store, taken) for taken in self.ranges]

    def publish(self, store: ArchiveStore, ledger: Ledger | None = None, **options: Any) -> CommitRecord:
        """Stages the files and publishes the batch."""
        given = {"lost": (), "say": lambda line: None, **options}
        return publish(
            store,
            ledger or Ledger(store),
            query=self.query,
            batch=self.batch,
            planned=self.ranges,
            results=given.pop("results", None) or self.stage(store),
            settings=settings_of(store.root),
            now_ms=1_700_000_000_000 + self.batch,
            seconds=0.5,
            **given,
        )

    def _task(self, store: ArchiveStore, taken: OffsetRange) -> TaskResult:
        files = tuple(self._file(store, taken, table, symbol) for table, symbol in self.tables)
        options = {"sequences": _gappy(taken), "quarantined": 1, "decoders": {"raw": self.version}}
        return task_result(taken, files, bytes_in=1000, **options)

    def _file(self, store: ArchiveStore, taken: OffsetRange, table: str, symbol: str) -> StagedFile:
        data = f"{taken} {table} {symbol} {self.version}".encode()
        staged = file_names.staged_path(uuid.uuid4().hex)
        with store.create(staged) as file:
            file.write(data)
        return StagedFile(
            table=table,
            date=DAY,
            symbol=symbol,
            topic=taken.topic,
            partition=taken.partition,
            staged=staged,
            rows=5,
            bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            ts_min=1,
            ts_max=2,
        )


class Crash(BaseException):
    """Stands for the death of the process: no ``except Exception`` cleans up after it."""


class FailingStore:
    """A store that counts the operations that change something and fails at number ``at``, before or after doing it."""

    def __init__(self, inner: ArchiveStore, at: int, how: Callable[[], BaseException], after: bool) -> None:
        self.inner = inner
        self.root = inner.root
        self.certain = inner.certain
        self.count = 0
        self.names: list[str] = []
        self._at, self._how, self._after = at, how, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def create(self, path: str) -> BinaryIO:
        return self._step("create", lambda: self.inner.create(path))

    def publish_all(self, moves: Sequence[tuple[str, str]]) -> None:
        for staged, final in moves:
            self._step("publish", lambda: self.inner.publish(staged, final))  # noqa: B023

    def put(self, path: str, data: bytes) -> None:
        self._step("put", lambda: self.inner.put(path, data))

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return self._step("put_if_absent", lambda: self.inner.put_if_absent(path, data))

    def delete(self, path: str) -> None:
        self._step("delete", lambda: self.inner.delete(path))

    def _step(self, name: str, do: Callable[[], T]) -> T:
        mine = self.count
        self.count += 1
        self.names.append(name)
        if mine == self._at and not self._after:
            raise self._how()
        step_result = do()
        if mine == self._at:
            if hasattr(step_result, "close"):
                step_result.close()
            raise self._how()
        return step_result


def operations(work: Work, store: ArchiveStore) -> list[str]:
    """Publishes a batch, and returns the operations that this takes."""
    counting = FailingStore(store, -1, Crash, after=False)
    work.publish(counting)
    return counting.names


def two_batches(store: ArchiveStore) -> dict[str, str]:
    """Publishes two batches, and returns the contents of the archive."""
    Work().publish(store)
    Work().next().publish(store)
    return contents(store)


def no_space() -> StoreError:
    error = StoreError("root: no space left")
    error.errno = errno.ENOSPC
    return error


def contents(store: ArchiveStore) -> dict[str, str]:
    """Returns the hashes of all files except staging and leases, by path."""
    return {
        path: hashlib.sha256(store.read(path)).hexdigest()
        for path in store.list("")
        if not path.startswith(("_staging/", "_leases/"))
    }


def published(store: ArchiveStore) -> set[str]:
    """Returns the paths of all files that a reader's glob finds."""
    return {path for path in store.list("") if path.endswith(".parquet")}


def named_files(record: CommitRecord) -> set[str]:
    return {entry.path for entry in record.files}


def opened(root: Any) -> ArchiveStore:
    return open_store(str(root))


def record_of(query: str, batch: int, *ranges: OffsetRange, **fields: Any) -> CommitRecord:
    """Returns a record, by default without files."""
    given = {
        "files": (), "messages": 1, "bytes_in": 1, "quarantined": 0, "gaps": 0, "decoders": {}, "state": {},
        "committed_ms": 1, **fields,
    }  # fmt: skip
    return CommitRecord(query=query, batch=batch, ranges=ranges, **given)


def _gappy(taken: OffsetRange) -> dict[str, Any]:
    """Returns a summary of sequences in which the number before each seventh message is missing."""
    ids = [offset + offset // 7 for offset in range(taken.start, taken.end)]
    messages = trades(ids, symbol=f"S/{taken.partition}")
    result = result_of(messages, taken.start, topic=taken.topic, partition=taken.partition)
    return result.sequences
