"""File and socket system calls of a real broker, in the order in which the kernel ended them, by ``strace``.

``pytest.skip`` without strace: a machine that forbids tracing can't run these tests.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

TRACED = "fsync,fdatasync,rename,renameat,renameat2,pwrite64,pwritev,pwritev2,write,ftruncate,sendto,sendmsg"
WRITES = frozenset({"pwrite64", "pwritev", "pwritev2", "write"})
SYNCS = frozenset({"fsync", "fdatasync"})
SEE_TIMEOUT_S = 30.0

_LINE = re.compile(r"(?P<pid>\d+) +(?:<\.\.\. (?P<resumed>\w+) resumed>|(?P<name>\w+)\()(?P<rest>.*)")
_DESCRIPTOR = re.compile(r"\d+<(?P<path>.*?)>(?:,|\)| <unfinished)")
_NAMES = re.compile(r'"([^"]*)"')
_UNFINISHED = "<unfinished ...>"


class Call(msgspec.Struct):
    """One system call."""

    pid: int
    """Id of the thread that made it."""
    name: str
    path: str
    """Path of the file, or the address of the socket; the old name of a rename."""
    new_path: str
    """The new name of a rename, otherwise empty."""
    begun: int
    """Line of the trace in which the call begins."""
    ended: int
    """Line in which it returns: a call that ended before another began has the smaller number."""
    failed: bool

    @property
    def is_answer(self) -> bool:
        """Whether it sends bytes to a client."""
        return self.name in ("sendto", "sendmsg") and self.path.startswith("TCP")


class Trace:
    """What ``strace`` writes while a broker runs below its :attr:`prefix`."""

    def __init__(self, path: Path) -> None:
        """Nothing is traced yet; skips the test if this machine has no strace, or forbids it."""
        strace = shutil.which("strace")
        if strace is None:
            pytest.skip("strace is not installed")
        probe = subprocess.run([strace, "-o", "/dev/null", "true"], capture_output=True, check=False)
        if probe.returncode:
            pytest.skip(f"strace is forbidden here: {probe.stderr.decode(errors='replace').strip()}")
        self.path = path
        options = ["-D", "-f", "--seccomp-bpf", "-yy", "-qq", "-s", "0", "-e", f"trace={TRACED}"]
        self.prefix = [strace, *options, "-o", str(path)]

    def calls(self) -> list[Call]:
        """The calls that have ended so far, in the order of their ends."""
        lines = self.path.read_text(errors="replace").splitlines() if self.path.exists() else []
        return sorted(_parsed(lines), key=lambda call: call.ended)

    def wait_for(self, seen: Callable[[list[Call]], bool]) -> list[Call]:
        """The calls, as soon as ``seen`` says that enough have ended.

        :raises AssertionError: they did not within ``SEE_TIMEOUT_S``; the message has the last calls
        """
        deadline = time.monotonic() + SEE_TIMEOUT_S
        while not seen(calls := self.calls()):
            assert time.monotonic() < deadline, calls[-20:]
            time.sleep(0.02)
        return calls


def _parsed(lines: list[str]) -> Iterator[Call]:
    unfinished: dict[int, Call] = {}
    for number, line in enumerate(lines):
        found = _LINE.match(line)
        if found is None:
            continue
        pid, rest = int(found["pid"]), found["rest"]
        if found["resumed"]:
            call = unfinished.pop(pid)
            call.ended, call.failed = number, " = -1 " in rest
            yield call
            continue
        descriptor = _DESCRIPTOR.match(rest)
        names = _NAMES.findall(rest) if descriptor is None else []
        path = descriptor["path"] if descriptor else names[0] if names else ""
        new_path = names[1] if len(names) > 1 else ""
        call = Call(pid, found["name"], path, new_path, number, number, " = -1 " in rest)
        if rest.endswith(_UNFINISHED):
            unfinished[pid] = call
        else:
            yield call
