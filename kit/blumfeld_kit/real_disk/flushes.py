"""Reads a trace of strace: whether each flush synced what was written before it completed.

The rule: between two flushes, the file that took most bytes holds the records. It must be synced after its last write
and before the flush completes, or be opened so that every write is synced. The same holds where the log says without a
flush that all is flushed, and for an ack under ``flush.messages``. Pure: tested without strace.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

TRACED = (
    "write,writev,pwrite64,pwritev,pwritev2,fsync,fdatasync,sync_file_range,msync,sync,syncfs,open,openat"
    + (",io_uring_enter")
)
_CALL = re.compile(r"^(?:\[pid\s+\d+\] |\d+ +)?(\w+)\((?:(\d+)<([^>]*)>)?(.*)$")
_RESULT = re.compile(r"= (-?\d+)(?:<([^>]*)>)?")
_MARK = re.compile(r'"(asked|flushed|told|acked-flushed|end)\b(?: (\d+))?')
_DONE = {
    "flushed": "flush {number} was done without a sync of {file}, to which {size} bytes were written before",
    "told": "flushed_end_offset counted {size} bytes in {file} without a sync of it",
    "acked-flushed": "a write was acknowledged under flush.messages=1 without a sync of {file}, "
    "to which {size} bytes were written",
}


class Unseen(Exception):  # noqa: N818 - what it is
    """The storage writes in a way that the trace doesn't show: memory maps, or io_uring."""


class _Reader:
    """Follows the calls of a trace."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.wrong: list[str] = []
        self.written: dict[str, int] = {}
        self.synced: set[str] = set()
        self.always: set[str] = set()
        self.flushes = self.bytes_asked = 0
        self.hidden = self.asked = False

    def mark(self, word: str, number: int) -> None:
        """Take a mark that the process wrote to its pipe."""
        if word == "asked":
            self.asked, self.bytes_asked = True, number
        elif word in _DONE:
            self._done(word, self.bytes_asked if word == "flushed" else number)

    def _done(self, word: str, size_bytes: int) -> None:
        if word == "flushed":
            self.flushes += 1
            self.asked = False
        if self.written:
            most = max(self.written, key=self.written.__getitem__)
            if most not in self.synced and most not in self.always:
                file = most.removeprefix(self.directory).lstrip("/")
                said = _DONE[word].format(number=self.flushes, file=file, size=self.written[most])
                self.wrong.append(said)
        elif not self.hidden and word == "flushed" and size_bytes:
            self.wrong.append(
                f"flush {self.flushes}: nothing was written in {self.directory} since the one before"
            )
        self.written, self.synced = {}, set()

    def call(self, call: str, path: str | None, rest: str) -> None:
        """Take a system call."""
        result = _RESULT.search(rest.rsplit(")", 1)[-1])
        if call in ("open", "openat"):
            if result is not None and result[2] and re.search(r"\bO_D?SYNC\b", rest):
                self.always.add(result[2])
        elif call in ("sync", "syncfs"):
            self.synced |= set(self.written)
        elif call in ("msync", "io_uring_enter"):
            self.hidden = True
        elif path is not None and path.startswith(self.directory):
            if call in ("fsync", "fdatasync"):
                self.synced.add(path)
            elif call != "sync_file_range":
                self.written[path] = self.written.get(path, 0) + max(int(result[1]) if result else 0, 0)
                self.synced.discard(path)


def unsynced_flushes(trace: Iterable[str], directory: str) -> list[str]:
    """Return one text for each flush that didn't sync; none if every flush did.

    :raises Unseen: the trace can't tell
    """
    reader = _Reader(directory)
    for line in trace:
        match = _CALL.match(line.strip())
        if match is None:
            continue
        call, _, path, rest = match.groups()
        mark = _MARK.search(rest) if call == "write" else None
        if mark is not None and not (path or "").startswith(directory):
            reader.mark(mark[1], int(mark[2] or 0))
        else:
            reader.call(call, path, rest)
    if reader.hidden and not reader.wrong:
        raise Unseen("it writes by memory maps or io_uring, which strace does not show")
    if not reader.flushes or reader.asked:
        reader.wrong.append("the process ended before a flush was done")
    return reader.wrong
