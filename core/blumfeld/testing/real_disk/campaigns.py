"""Lives that end in every way that a process can: each is a fork, and the next one says what is left."""

from __future__ import annotations

import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from blumfeld.testing.real_disk.account import Account
from blumfeld.testing.real_disk.life import Life, MakeIn

KILLS = 12
"""Lives that end by SIGKILL, each after another number of acknowledged writes."""
TORN_AT = (1, 61, 130, 500, 1_700, 4_097, 5_003, 9_001, 20_011)
"""By how many bytes a file may grow until the kernel ends the process within the write that goes beyond."""
APPENDS_MAX = 200
FAULTS = 24
"""Writes, of which most meet a disk that takes nothing, or only a part."""


def kills(make: MakeIn, directory: str) -> Account:
    """SIGKILL as soon as a write was acknowledged; the log is flushed in some lives, and never stopped."""

    def live(life: Life, number: int) -> None:
        for n in range(1 + number % 5):
            life.append(1 + (number + n) % 3)
        life.note(number)
        if number % 3 == 1:
            life.flush()
        life.append()
        os.kill(os.getpid(), signal.SIGKILL)

    return _lives(make, directory, [live] * KILLS, "SIGKILL behind an acknowledged write")


def torn_writes(make: MakeIn, directory: str) -> Account:
    """The kernel kills the process within the write that lets a file grow too far: what fits is in the file."""

    def until(growth: int) -> Callable[[Life, int], None]:
        def live(life: Life, _: int) -> None:
            life.append()
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            _limit_files(_largest(directory) + growth)
            for n in range(APPENDS_MAX):
                life.append(1 + n % 3)
            os.kill(os.getpid(), signal.SIGKILL)

        return live

    return _lives(make, directory, [until(growth) for growth in TORN_AT], "a death within a write")


def faults(make: MakeIn, directory: str) -> Account:
    """Writes that fail at once, or after a part, while the process lives on; then SIGKILL."""

    def live(life: Life, number: int) -> None:
        for n in range(FAULTS // 4):
            room = (None, 0, _largest(directory) + 1, _largest(directory) + 70)[(n + number) % 4]
            _limit_files(room)
            life.append(1 + n % 2)
            _limit_files(None)
        os.kill(os.getpid(), signal.SIGKILL)

    return _lives(make, directory, [live] * 4, "writes that could not be done, then SIGKILL")


def syncs(make: MakeIn, directory: str) -> Account:
    """Flush after flush in this process, which strace watches: ``flushes`` says what came of it."""
    life = Life(make, directory, 1, sys.stdout.fileno())
    for n in range(4):
        life.append(1 + n)
        life.append()
        life.flush()
    life.say("end")
    return Account()


CAMPAIGNS: dict[str, Callable[[MakeIn, str], Account]] = {
    "kills": kills,
    "torn": torn_writes,
    "faults": faults,
    "syncs": syncs,
}


def _lives(make: MakeIn, directory: str, lives: list[Callable[[Life, int], None]], how: str) -> Account:
    account = Account()
    before = "a start on an empty directory"
    wrong: list[str] = []
    for number, live in enumerate([*lives, _only_look]):
        wrong += account.take(_fork(make, directory, number, live), before)
        before = how
        account.deaths = number
    for line in dict.fromkeys(wrong):
        print("broken", line, flush=True)
    return account


def _only_look(life: Life, _: int) -> None:
    life.append()


def _fork(make: MakeIn, directory: str, number: int, live: Callable[[Life, int], None]) -> list[str]:
    """Live in a child; the lines that it said. It has said all that it knew when it died."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            life = Life(make, directory, number + 1, writer)
            life.tell_what_is_there()
            live(life, number)
        except BaseException as error:
            where = traceback.format_exc().replace("\n", " / ")[-600:]
            os.write(writer, f"broken {type(error).__name__}: {where}\n".encode())
        os._exit(0)  # nothing is stopped: the next life finds what a killed one leaves
    os.close(writer)
    with os.fdopen(reader) as said:
        lines = said.read().splitlines()
    os.waitpid(pid, 0)
    return lines


def _limit_files(size: int | None) -> None:
    """No file may be written beyond ``size``: EFBIG, or SIGXFSZ where it isn't ignored. It takes every I/O layer."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard if size is None else size, hard))


def _largest(directory: str) -> int:
    return max((path.stat().st_size for path in Path(directory).rglob("*") if path.is_file()), default=0)
