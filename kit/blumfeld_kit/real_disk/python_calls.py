"""Calls of a process to Python's ``os`` about its files, as lines like those of strace: for machines without strace.

Calls of libraries in C are not among them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_WRITES = ("write", "writev", "pwrite", "pwritev")
_SYNCS = ("fsync", "fdatasync")
_MARK_BYTES = 24


@contextmanager
def traced_calls(path: str) -> Iterator[None]:
    """Write the calls of this process to ``path`` while the context lasts."""
    right = {name: getattr(os, name) for name in (*_WRITES, *_SYNCS, "open", "sync")}
    trace = right["open"](path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)

    def say(line: str) -> None:
        right["write"](trace, f"1 {line}\n".encode())

    def traced(name: str) -> Callable[..., Any]:
        def call(fd: int, *rest: Any, **named: Any) -> Any:
            result = right[name](fd, *rest, **named)
            shown = f'"{_text(rest[0])}", ' if name == "write" else ""
            say(f"{name}({fd}<{_name(fd)}>, {shown}…) = {0 if result is None else result}")
            return result

        return call

    def opened(file: Any, flags: int, *rest: Any, **named: Any) -> int:
        fd: int = right["open"](file, flags, *rest, **named)
        synced = "O_DSYNC" if flags & os.O_DSYNC else "O_RDWR"
        say(f'openat(AT_FDCWD, "", {synced}) = {fd}<{_name(fd)}>')
        return fd

    def sync() -> None:
        right["sync"]()
        say("sync() = 0")

    planted: dict[str, Callable[..., Any]] = {name: traced(name) for name in (*_WRITES, *_SYNCS)}
    planted |= {"open": opened, "sync": sync}
    try:
        for name, call in planted.items():
            setattr(os, name, call)
        yield
    finally:
        for name, call in right.items():
            setattr(os, name, call)
        os.close(trace)


def _name(fd: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""


def _text(data: Any) -> str:
    return bytes(data[:_MARK_BYTES]).decode("ascii", "replace").translate({10: " ", 34: " "})
