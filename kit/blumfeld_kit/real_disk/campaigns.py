"""Processes that end in every way a process can. Each is a fork, and the next one reports what is left."""

from __future__ import annotations

import os
import resource
import signal
import stat
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from blumfeld_kit.real_disk.life import PARTITIONS, Life, MakeIn
from blumfeld_kit.real_disk.reports import Reports

KILLS = 12
"""Number of lives that end by SIGKILL, each after another number of acknowledged writes."""
TORN_AT = (1, 130, 1_700, 4_097, 9_001, 20_011)
"""Bytes by which a file may still grow. The kernel ends the process in the write that goes beyond."""
TORN_CALLS = (1, 2, 3, 5, 8, 13)
"""Numbers of Python's own writes to a file that SIGKILL cuts in half, one a life."""
APPENDS_MAX = 80
FAULTS = 24
"""Number of writes. Most of them meet a disk that takes nothing, or only a part."""


def kills(make: MakeIn, directory: str) -> Reports:
    """Send SIGKILL as soon as a write is acknowledged. Some lives flush the logs, write a checkpoint, or delete a log.
    None stops the storage.
    """

    def live(life: Life, number: int) -> None:
        for n in range(1 + number % 5):
            life.append(1 + (number + n) % 3)
        life.note(number)
        if number % 3 == 1:
            for at in PARTITIONS:
                life.flush(at)
        if number % 2:
            life.checkpoint()
        if number % 4 < 2:
            life.delete_one(number)
        life.append()
        os.kill(os.getpid(), signal.SIGKILL)

    return _lives(make, directory, [live] * KILLS, "SIGKILL behind an acknowledged write")


def torn_writes(make: MakeIn, directory: str) -> Reports:
    """The process dies in the middle of a write, of which a part is in the file.

    In half of the lives ``os.pwritev`` or a similar call writes its first half, and SIGKILL follows. In the others the
    kernel limits the size of files: it cuts a write there, and the attempt to write the rest ends the process by
    SIGXFSZ, whatever library does the I/O. A storage that gives up after the cut is killed after it refuses the write.
    """

    def append_until(life: Life) -> None:
        for n in range(APPENDS_MAX):
            if not life.append(1 + n % 3):
                break
        os.kill(os.getpid(), signal.SIGKILL)

    def grows(growth: int) -> Callable[[Life, int], None]:
        def live(life: Life, _: int) -> None:
            life.append()
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            _limit_files(_largest(directory) + growth)
            append_until(life)

        return live

    def tears(call: int) -> Callable[[Life, int], None]:
        def live(life: Life, _: int) -> None:
            _tear(call)
            append_until(life)

        return live

    lives = [life for pair in zip(map(tears, TORN_CALLS), map(grows, TORN_AT), strict=True) for life in pair]
    return _lives(make, directory, lives, "a death within a write")


def _tear(call: int) -> None:
    """Cut Python's ``call``-th write to a regular file in half, and die there."""
    left = call

    def torn(name: str) -> Callable[..., int]:
        right: Callable[..., int] = getattr(os, name)

        def write(fd: int, data: Any, *rest: Any) -> int:
            nonlocal left
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return right(fd, data, *rest)
            left -= 1
            if left:
                return right(fd, data, *rest)
            many = name in ("writev", "pwritev")
            whole = b"".join(data) if many else bytes(data)
            half = whole[: len(whole) // 2]
            right(fd, [half] if many else half, *rest)
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError

        return write

    for name in ("write", "writev", "pwrite", "pwritev"):
        setattr(os, name, torn(name))


def faults(make: MakeIn, directory: str) -> Reports:
    """Let writes fail at once or after a part while the process lives on, then send SIGKILL."""

    def live(life: Life, number: int) -> None:
        for n in range(FAULTS // 4):
            room = (None, 0, _largest(directory) + 1, _largest(directory) + 70)[(n + number) % 4]
            _limit_files(room)
            life.append(1 + n % 2)
            _limit_files(None)
        os.kill(os.getpid(), signal.SIGKILL)

    return _lives(make, directory, [live] * 4, "writes that could not be done, then SIGKILL")


def syncs(make: MakeIn, directory: str) -> Reports:
    """Flush again and again in this process while strace watches. ``flushes`` reads the trace."""
    life = Life(make, directory, 1, sys.stdout.fileno())
    flushed, synced = PARTITIONS
    life.open(flushed)
    life.open(synced, flush_messages=1)
    for n in range(4):
        life.append(1 + n, flushed)
        life.tell_flushed_end(flushed)
        life.append(1, flushed)
        life.flush(flushed)
    for _ in range(2):
        life.append(2, synced)
        life.say("acked-flushed", life.bytes_unflushed)
        life.bytes_unflushed = 0
    life.say("end")
    return Reports()


CAMPAIGNS: dict[str, Callable[[MakeIn, str], Reports]] = {
    "kills": kills,
    "torn": torn_writes,
    "faults": faults,
    "syncs": syncs,
}


def _lives(make: MakeIn, directory: str, lives: list[Callable[[Life, int], None]], how: str) -> Reports:
    reports = Reports()
    before = "a start on an empty directory"
    wrong: list[str] = []
    for number, live in enumerate([*lives, _only_look]):
        wrong += reports.take(_fork(make, directory, number, live), before)
        before = how
        reports.deaths = number
    for line in dict.fromkeys(wrong):
        print("broken", line, flush=True)
    return reports


def _only_look(life: Life, _: int) -> None:
    life.append()


def _fork(make: MakeIn, directory: str, number: int, live: Callable[[Life, int], None]) -> list[str]:
    """Run in a child process, and return the lines that it reported before it died."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            life = Life(make, directory, number + 1, writer)
            life.open_all()
            live(life, number)
        except BaseException as error:
            where = traceback.format_exc().replace("\n", " / ")[-600:]
            os.write(writer, f"broken {type(error).__name__}: {where}\n".encode())
        os._exit(0)  # without a stop, so that the next life finds what a killed one leaves
    os.close(writer)
    with os.fdopen(reader) as said:
        lines = said.read().splitlines()
    os.waitpid(pid, 0)
    return lines


def _limit_files(size: int | None) -> None:
    """Limit the size of files: EFBIG, or SIGXFSZ unless it is ignored. This reaches every I/O library of the
    process.
    """
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard if size is None else size, hard))


def _largest(directory: str) -> int:
    return max((path.stat().st_size for path in Path(directory).rglob("*") if path.is_file()), default=0)
