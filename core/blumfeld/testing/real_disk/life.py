"""One process on the real disk: it opens the log, reports what it finds, appends, and reports what was acknowledged.

It writes each report to a pipe at once, as a line, so that the reports survive its death.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Any

from blumfeld.kernel.runtime.real_files import RealFiles
from blumfeld.spi.storage import LogStorage
from blumfeld.testing.fakes.runtime import FakeRuntime
from blumfeld.testing.storage_driver.node import Log, Node, make_batch

MakeIn = Callable[[FakeRuntime, str], LogStorage]
"""Makes the storage in a directory: the type of ``StorageKit.make_storage_in``."""

NOTE = "a-note"
VALUE_BYTES = 150


class Life:
    """A started storage with one open log."""

    def __init__(self, make: MakeIn, directory: str, seed: int, fd: int) -> None:
        self._fd = fd
        self._seed = seed * 10_000
        node = Node(lambda _: FakeRuntime(seed, files=RealFiles()), lambda runtime: make(runtime, directory))
        self.log: Log = node.start().open(index_interval_bytes=200)
        self.appended = 0

    def say(self, word: str, *values: Any) -> None:
        """Report a line at once."""
        os.write(self._fd, " ".join([word, *map(str, values)]).encode() + b"\n")

    def tell_what_is_there(self) -> None:
        """Report ``found`` for each batch, then ``there`` with the small file."""
        for batch in self.log.read_all():
            self.say("found", batch.base_offset, batch.next_offset, digest(batch.data))
        note = self.log.log.aux.read(NOTE)
        self.say("there", self.log.log.written_end_offset, "-" if note is None else note.decode())

    def append(self, count: int = 1) -> bool:
        """Report ``placed`` for each batch, then ``acked`` or ``refused``. Return whether the write was
        acknowledged.
        """
        log = self.log.log
        try:
            for n in range(count):
                self.appended += 1
                batch = make_batch(1 + n % 2, seed=self._seed + self.appended, value_bytes=VALUE_BYTES)
                log.place(batch, 0)
                self.say("placed", batch.base_offset, batch.next_offset, digest(bytes(batch.data)))
            outcome = self.log.write()
        except OSError as error:
            self.say("refused", log.written_end_offset, repr(error))
            return False
        if outcome.error is not None:
            self.say("refused", outcome.written_end_offset, repr(outcome.error))
            return False
        self.say("acked", outcome.written_end_offset)
        return True

    def note(self, number: int) -> None:
        """Write a small file beside the log."""
        self.say("noting", number)
        self.log.log.aux.write(NOTE, b"%d" % number)
        self.say("noted", number)

    def flush(self) -> None:
        """Flush. Report ``asked`` before and ``flushed`` after it."""
        self.say("asked", self.log.log.written_end_offset)
        self.say("flushed", self.log.flush())


def digest(data: bytes) -> str:
    """Return a short digest."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()
