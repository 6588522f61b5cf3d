"""Reads a trace of strace: whether each flush synced what was written before it completed.

The rule: between two flushes, the file that took most bytes holds the records. It must be synced after its last write
and before the flush completes, or be opened so that every write is synced. Pure: tested without strace.
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
_MARK = re.compile(r'"(asked|flushed|end)\b')


class Unseen(Exception):  # noqa: N818 - what it is
    """The storage writes in a way that strace doesn't show: memory maps or io_uring."""


def unsynced_flushes(trace: Iterable[str], directory: str) -> list[str]:
    """Return one text for each flush that didn't sync; none if every flush did.

    :raises Unseen: the trace can't tell
    """
    wrong: list[str] = []
    written: dict[str, int] = {}
    synced: set[str] = set()
    always: set[str] = set()
    flushes, hidden = 0, False
    asked = False
    for line in trace:
        found = _CALL.match(line.strip())
        if found is None:
            continue
        call, _, path, rest = found.groups()
        mark = _MARK.search(rest) if call == "write" else None
        if mark is not None and not (path or "").startswith(directory):
            if mark[1] == "asked":
                asked = True
            elif mark[1] == "flushed":
                flushes += 1
                asked = False
                if written:
                    most = max(written, key=written.__getitem__)
                    if most not in synced and most not in always:
                        wrong.append(_in_words(flushes, most, written[most], directory))
                elif not hidden:
                    wrong.append(f"flush {flushes}: nothing was written in {directory} since the one before")
                written, synced = {}, set()
            continue
        if call in ("open", "openat"):
            made = _RESULT.search(rest.rsplit(")", 1)[-1])
            if made is not None and made[2] and re.search(r"\bO_D?SYNC\b", rest):
                always.add(made[2])
        elif call in ("sync", "syncfs"):
            synced |= set(written)
        elif call in ("msync", "io_uring_enter"):
            hidden = True
        elif path is not None and path.startswith(directory):
            if call in ("fsync", "fdatasync"):
                synced.add(path)
            elif call != "sync_file_range":
                size = _RESULT.search(rest.rsplit(")", 1)[-1])
                written[path] = written.get(path, 0) + max(int(size[1]) if size else 0, 0)
                synced.discard(path)
    if hidden and not any(written.values()) and not wrong:
        raise Unseen("it writes by memory maps or io_uring, which strace does not show")
    if not flushes or asked:
        wrong.append("the process ended before a flush was done")
    return wrong


def _in_words(flush: int, path: str, size: int, directory: str) -> str:
    name = path.removeprefix(directory).lstrip("/")
    return f"flush {flush} was done without a sync of {name}, to which {size} bytes were written before"
