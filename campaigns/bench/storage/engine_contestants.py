"""A log storage, and a bare loop that does the same with the same bytes: append, read, append and sync.

The bare loop does the least that any storage must: one ``pwritev`` for each partition and turn, one ``sendfile`` for
each region, one ``fdatasync`` for each file. It keeps no offsets and no index, and handles no errors.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, Protocol, TypeVar, cast

import attrs

from blumfeld.config.values import BrokerConfig, TopicConfig
from blumfeld.kernel.runtime.asyncio_runtime import AsyncioRuntime
from blumfeld.plugging.registry import Registry
from blumfeld.spi.hooks import Composition
from blumfeld.spi.parts import FileRegion
from blumfeld.spi.storage import LogRead, LogStorage, PartitionLog, TopicPartition, WriteOutcome
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import Record

T = TypeVar("T")

REGION_BYTES = 1 << 20
KEPT_BYTES = 64 << 20
"""Size of the log that is read; its segments are a quarter of it."""
SOCKET_BYTES = 4 << 20
TIME_MS = 1_700_000_000_000

Turns = Callable[[int], None]
"""Function that does this many turns of work."""


@attrs.frozen
class Shape:
    """The work of one turn."""

    name: str
    kind: Literal["append", "read", "sync"]
    batch_bytes: int
    batches: int = 1
    """Batches for each partition in one turn."""
    partitions: int = 1
    sync_each: bool = False
    """The bare loop writes and syncs each batch on its own, as a writer would that knows nothing of the others."""
    sink: Literal["socket", "null"] = "socket"

    @property
    def turn_bytes(self) -> int:
        """Bytes of a turn."""
        return REGION_BYTES if self.kind == "read" else self.batch_bytes * self.batches * self.partitions


SHAPES = (
    Shape("append 1 KiB to each of 16", "append", 1024, partitions=16),
    Shape("append 16 × 16 KiB", "append", 16_384, batches=16),
    Shape("append 1 MiB", "append", 1 << 20),
    Shape("read 1 MiB to a socket", "read", 16_384),
    Shape("read 1 MiB to /dev/null", "read", 16_384, sink="null"),
    Shape("synced: 1 KiB", "sync", 1024),
    Shape("synced: 1 KiB to each of 16", "sync", 1024, partitions=16),
    Shape("synced: 64 requests of 1 KiB", "sync", 1024, batches=64, sync_each=True),
)


class Contestant(Protocol):
    """A contestant that does a shape's work."""

    @property
    def name(self) -> str:
        """Name in the table."""
        ...

    def working(self) -> Any:
        """Return a context in which all files are open, and full if they are to be read; it yields the function that
        does turns.
        """
        ...


def batch_of(size_bytes: int) -> bytearray:
    """Return one record in a batch of exactly this size."""
    value_bytes = size_bytes - 80
    while True:
        data = build_batch([Record(None, b"v" * value_bytes, timestamp=TIME_MS)])
        if len(data) == size_bytes:
            return data
        value_bytes += size_bytes - len(data)


class Bare:
    """System calls in a loop."""

    name = "bare"

    def __init__(self, shape: Shape, folder: Path) -> None:
        self._shape = shape
        self._folder = folder

    @contextmanager
    def working(self) -> Iterator[Turns]:
        """Open the files and yield the function that does turns."""
        paths = [self._folder / f"bare-{number}" for number in range(self._shape.partitions)]
        files = [os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644) for path in paths]
        try:
            if self._shape.kind == "read":
                buffer = batch_of(self._shape.batch_bytes)
                for position in range(0, KEPT_BYTES, len(buffer)):
                    os.pwritev(files[0], [buffer], position)
                with sink(self._shape) as send:
                    self._read(files[0], send, KEPT_BYTES // REGION_BYTES)
                    yield lambda turns: self._read(files[0], send, turns)
            else:
                yield lambda turns: self._write(files, turns)
        finally:
            for file, path in zip(files, paths, strict=True):
                os.close(file)
                path.unlink()

    def _write(self, files: Sequence[int], turns: int) -> None:
        shape = self._shape
        buffers = [memoryview(batch_of(shape.batch_bytes)) for _ in range(shape.batches)]
        requests = [[buffer] for buffer in buffers] if shape.sync_each else [buffers]
        position, synced = 0, shape.kind == "sync"
        for _ in range(turns):
            for request in requests:
                for file in files:
                    os.pwritev(file, request, position)
                if synced:
                    for file in files:
                        os.fdatasync(file)
                position += len(request) * shape.batch_bytes

    def _read(self, file: int, send: Callable[[int, int, int], None], turns: int) -> None:
        position = 0
        for _ in range(turns):
            send(file, position, REGION_BYTES)
            position = (position + REGION_BYTES) % KEPT_BYTES


@contextmanager
def sink(shape: Shape) -> Iterator[Callable[[int, int, int], None]]:
    """Yield ``send(descriptor, position, size)``, the target of ``sendfile``. A socket is drained at once."""
    if shape.sink == "null":
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            yield lambda file, position, size: _all_of(os.sendfile(null, file, position, size), size)
        finally:
            os.close(null)
        return
    near, far = socket.socketpair()
    room = bytearray(REGION_BYTES)
    with near, far:
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
        out = near.fileno()

        def send(file: int, position: int, size: int) -> None:
            while size:
                sent = os.sendfile(out, file, position, min(size, 65_536))
                position, size = position + sent, size - sent
                while sent:
                    sent -= far.recv_into(room, sent)

        yield send


def _all_of(sent: int, size: int) -> None:
    if sent != size:
        raise OSError(f"{sent} of {size} bytes were sent")


class Engine:
    """A log storage, by the plug-in's name, on a loop of its own."""

    def __init__(self, shape: Shape, folder: Path, plugin: str = "storage_local") -> None:
        self.name = plugin
        self._shape = shape
        self._folder = folder
        self._runs = 0
        self._loop = asyncio.new_event_loop()

    def close(self) -> None:
        """Close the loop."""
        self._loop.close()

    @contextmanager
    def working(self) -> Iterator[Turns]:
        """Open logs in a directory of their own and yield the function that does turns."""
        self._runs += 1
        runtime = AsyncioRuntime(_defect, loop=self._loop)
        storage = self._storage(runtime, self._folder / f"engine-{self._runs}")
        self._run(storage.start("bench", 1))
        try:
            logs = [
                self._run(self._open(storage, TopicPartition("t", n))) for n in range(self._shape.partitions)
            ]
            if self._shape.kind == "read":
                self._fill(logs[0])
                with sink(self._shape) as send:
                    self._read(logs[0], send, KEPT_BYTES // REGION_BYTES)  # open and look up everything once
                    yield lambda turns: self._read(logs[0], send, turns)
            elif self._shape.kind == "sync":
                yield lambda turns: self._run(self._write_and_wait(logs, turns))
            else:
                yield lambda turns: self._write(logs, turns)
        finally:
            for number in range(self._shape.partitions):
                storage.delete_log(TopicPartition("t", number))  # deleted data is not worth a sync
            self._run(storage.stop(-1))
            self._run(runtime.close())

    def _storage(self, runtime: AsyncioRuntime, folder: Path) -> LogStorage:
        plugin = Registry().load_any(self.name)
        options = {"flush": "every"} if self._shape.kind == "sync" else {}
        composition = SimpleNamespace(
            runtime=runtime,
            data_dir=str(folder),
            data_dirs=(str(folder),),
            config=BrokerConfig({}),
            options=plugin.options_class(**options),
            log=lambda _: _Silent(),
        )
        made: LogStorage = cast(Any, plugin()).blumfeld_make_storage(cast(Composition, composition))
        return made

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(coroutine)

    async def _open(self, storage: LogStorage, partition: TopicPartition) -> PartitionLog:
        settings = {"internal.segment.bytes": KEPT_BYTES // 4} if self._shape.kind == "read" else {}
        return await storage.open_log(partition, b"\1" * 16, TopicConfig(settings), _Listener())

    def _batches(self) -> list[RecordBatch]:
        size_bytes = self._shape.batch_bytes
        return [RecordBatch(memoryview(batch_of(size_bytes))) for _ in range(self._shape.batches)]

    def _write(self, logs: Sequence[PartitionLog], turns: int) -> None:
        batches = [self._batches() for _ in logs]
        for _ in range(turns):
            for log, placed in zip(logs, batches, strict=True):
                for batch in placed:
                    log.place(batch, 0)
            for log in logs:
                log.write(_check)

    async def _write_and_wait(self, logs: Sequence[PartitionLog], turns: int) -> None:
        batches = [self._batches() for _ in logs]
        for _ in range(turns):
            acknowledged, acknowledgements = asyncio.Event(), 0

            def done(outcome: WriteOutcome, acknowledged: asyncio.Event = acknowledged) -> None:
                nonlocal acknowledgements
                _check(outcome)
                acknowledgements += 1
                if acknowledgements == len(logs):
                    acknowledged.set()

            for log, placed in zip(logs, batches, strict=True):
                for batch in placed:
                    log.place(batch, 0)
                log.write(done)
            await acknowledged.wait()

    def _fill(self, log: PartitionLog) -> None:
        batch = self._batches()[0]
        for _ in range(KEPT_BYTES // self._shape.batch_bytes):
            log.place(batch, 0)
            log.write(_check)

    def _read(self, log: PartitionLog, send: Callable[[int, int, int], None], turns: int) -> None:
        end_offset = log.written_end_offset
        step = REGION_BYTES // self._shape.batch_bytes
        offset = 0
        for _ in range(turns):
            log_read = log.read(offset, REGION_BYTES, end_offset, True)
            if not isinstance(log_read, LogRead):
                log_read = self._run(_awaited(log_read))
            for part in log_read.parts:
                region = cast(FileRegion, part)  # a storage hands out a MiB as a region, never as a copy
                send(region.fileno(), region.position, region.size_bytes)
                region.release()
            offset = (offset + step) % end_offset


async def _awaited(completion: Any) -> LogRead:
    log_read: LogRead = await completion
    return log_read


def _check(outcome: WriteOutcome) -> None:
    if outcome.error is not None:
        raise outcome.error


def _defect(where: str, error: BaseException) -> None:
    raise RuntimeError(f"defect in {where}") from error


class _Listener:
    def rolled(self, base_offset: int) -> None:
        """Ignore the roll: there are no producers."""

    def recovered(self, batch: RecordBatch) -> None:
        """Ignore the batch: the logs are new."""


class _Silent:
    def debug(self, event: str, **values: Any) -> None:
        """Drop the event."""

    info = warning = error = debug
