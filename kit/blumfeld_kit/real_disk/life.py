"""One process on the real disk: it opens the logs, reports what it finds, appends, and reports what was acknowledged.

It writes each report to a pipe at once, as a line, so that the reports survive its death.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Any

from blumfeld.kernel.runtime.real_files import RealFiles
from blumfeld.spi.storage import LogStorage, TopicPartition
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.real_disk.reports import NOTHING
from blumfeld_kit.storage_driver.node import Log, Node, make_batch

MakeIn = Callable[[FakeRuntime, str], LogStorage]
"""Makes the storage in a directory: the type of ``StorageKit.make_storage_in``."""

PARTITIONS = [TopicPartition("topic", 0), TopicPartition("topic", 1)]
"""Two of one topic, so that a storage which mixes them up is found."""
GONE_TOPIC_ID = bytes(range(48, 64))
NOTES = ("leader-epoch-checkpoint", "00000000000000000003.snapshot")
HIGH_WATERMARK = "high-watermark"
VALUE_BYTES = 150
CHECKPOINT_MS = 1_000
"""Time within which a checkpoint is written."""


class Life:
    """A started storage with two open logs."""

    def __init__(self, make: MakeIn, directory: str, seed: int, fd: int) -> None:
        self._fd = fd
        self._seed = seed * 10_000
        self.node = Node(
            lambda _: FakeRuntime(seed, files=RealFiles()), lambda runtime: make(runtime, directory)
        ).start()
        self.logs: dict[TopicPartition, Log] = {}
        self.writes = self.placed = 0
        self.bytes_unflushed = 0

    def say(self, word: str, *values: Any) -> None:
        """Report a line at once."""
        os.write(self._fd, " ".join([word, *map(str, values)]).encode() + b"\n")

    def open(self, at: TopicPartition, *, flush_messages: int = 1 << 62) -> Log:
        """Open or create a log."""
        self.logs[at] = log = self.node.open(at, index_interval_bytes=200, flush_messages=flush_messages)
        return log

    def open_all(self) -> None:
        """Open the logs. Report ``partition`` for each log that the start found, and for each of ours ``found`` for
        each batch, ``there`` with its end, and ``kept`` for each small file and the high watermark.
        """
        for at, _ in self.node.storage.partitions():
            self.say("partition", at)
        marks = self.node.storage.high_watermarks()
        for at in PARTITIONS:
            log = self.open(at)
            for batch in log.read_all():
                self.say("found", at, batch.base_offset, batch.next_offset, digest(batch.data))
            self.say("there", at, log.log.written_end_offset)
            for name in NOTES:
                data = log.log.aux.read(name)
                self.say("kept", at, name, NOTHING if data is None else _word(data))
            self.say("kept", at, HIGH_WATERMARK, marks.get(at, NOTHING))

    def append(self, count: int = 1, at: TopicPartition | None = None) -> bool:
        """Append batches in one write, to each log in turn. Report ``placed`` for each batch, then ``acked`` or
        ``refused``. Return whether the write was acknowledged.
        """
        self.writes += 1
        at = PARTITIONS[self.writes % len(PARTITIONS)] if at is None else at
        log = self.logs[at]
        try:
            for n in range(count):
                self.placed += 1
                batch = make_batch(1 + n % 2, seed=self._seed + self.placed, value_bytes=VALUE_BYTES)
                log.log.place(batch, 0)
                self.bytes_unflushed += batch.size_bytes
                self.say("placed", at, batch.base_offset, batch.next_offset, digest(bytes(batch.data)))
            outcome = log.write()
        except OSError as error:
            self.say("refused", at, log.log.written_end_offset, repr(error))
            return False
        if outcome.error is not None:
            self.say("refused", at, outcome.written_end_offset, repr(outcome.error))
            return False
        self.say("acked", at, outcome.written_end_offset)
        return True

    def note(self, number: int) -> None:
        """Write the small files beside each log. Report ``begun`` before each, ``done`` after it."""
        for at, log in self.logs.items():
            for name in NOTES:
                value = f"{at}/{name}/{number}"
                self.say("begun", at, name, value)
                log.log.aux.write(name, value.encode())
                self.say("done", at, name, value)

    def checkpoint(self) -> None:
        """Checkpoint high watermarks. Report ``begun`` and ``done`` for each."""
        marks = {at: log.log.written_end_offset for at, log in self.logs.items()}
        for at, mark in marks.items():
            self.say("begun", at, HIGH_WATERMARK, mark)
        self.node.storage.checkpoint(marks.items())
        self.node.runtime.advance(CHECKPOINT_MS)
        for at, mark in marks.items():
            self.say("done", at, HIGH_WATERMARK, mark)

    def delete_one(self, number: int) -> None:
        """Make one more log, and delete it. Report ``deleted``."""
        at = TopicPartition("gone", number)
        log = self.node.open(at, GONE_TOPIC_ID)
        log.fill(2)
        log.flush()
        log.log.close()
        self.node.storage.delete_log(at)
        self.say("deleted", at)

    def flush(self, at: TopicPartition) -> None:
        """Flush. Report ``asked`` before, with the bytes that wait for it, and ``flushed`` after it."""
        self.say("asked", self.bytes_unflushed)
        self.say("flushed", self.logs[at].flush())
        self.bytes_unflushed = 0

    def tell_flushed_end(self, at: TopicPartition) -> None:
        """If the log says that all is flushed, report ``told``: as for a flush, a sync must have come before."""
        log = self.logs[at].log
        if log.flushed_end_offset == log.written_end_offset:
            self.say("told", self.bytes_unflushed)
            self.bytes_unflushed = 0


def _word(data: bytes) -> str:
    return "_".join(data.decode(errors="replace").split()) or "empty"


def digest(data: bytes) -> str:
    """Return a short digest."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()
