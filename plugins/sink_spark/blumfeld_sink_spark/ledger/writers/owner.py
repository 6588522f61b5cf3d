"""The identity of a writer's process. From it another process can tell whether the writer still lives."""

from __future__ import annotations

import os
import socket
import time
import uuid
from pathlib import Path

import msgspec

UNKNOWN_TICKS = 1
"""Start time of a living process on a system that doesn't tell start times."""


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """One writer in a process of a host."""

    host: str
    """Host name, boot id and process namespace. A pid means something only within all three: not outside its
    container, nor after a reboot.
    """
    pid: int
    born: int
    """Start time of the process, in the host's ticks. It tells the process from a later one with the same pid."""
    started_ms: int
    """Wall-clock time of the claim, for people."""
    token: str
    """Random id of this writer. It tells two writers in one process apart."""

    @classmethod
    def here(cls) -> Owner:
        """Returns a new writer's identity in this process."""
        pid = os.getpid()
        now_ms = time.time_ns() // 1_000_000
        return cls(host=host_name(), pid=pid, born=born(pid), started_ms=now_ms, token=uuid.uuid4().hex)

    def is_dead(self) -> bool:
        """Returns whether the process is surely dead. False if it ran on another host, where this one can't look."""
        return self.host == host_name() and (born(self.pid) or -1) != self.born

    def is_alive(self) -> bool:
        """Returns whether the process surely lives: it runs on this host, and its start time is the same. False if
        this host can't tell.
        """
        return self.host == host_name() and born(self.pid) == self.born and self.born > UNKNOWN_TICKS

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host.partition('/')[0]}"


def host_name() -> str:
    """Returns the host's name, boot id and process namespace, joined by ``/``."""
    return "/".join((socket.gethostname(), _line("/proc/sys/kernel/random/boot_id")[:8], _namespace()))


def born(pid: int) -> int:
    """Returns the start time of a process, in ticks since the boot; 0 if it doesn't run.

    A zombie doesn't run. If only its first thread is one, as for a moment after a kill, another may still write.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        is_zombie = fields[0] in ("Z", "X") and len(os.listdir(f"/proc/{pid}/task")) <= 1
    except OSError:
        return 0 if Path("/proc/self/stat").exists() or not _is_there(pid) else UNKNOWN_TICKS
    return 0 if is_zombie else int(fields[19])


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _line(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
