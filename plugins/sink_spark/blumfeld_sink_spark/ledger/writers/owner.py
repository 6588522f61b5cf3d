"""Who a writer is, so that another can tell whether it still lives."""

from __future__ import annotations

import os
import socket
import time
import uuid
from pathlib import Path

import msgspec

UNKNOWN_TICKS = 1
"""Of a process that is there, on a system that doesn't say since when."""


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """A process, on a host."""

    host: str
    """Name, boot and process namespace: a container's pid says nothing on its host, nor after a reboot."""
    pid: int
    born: int
    """When the process started, in the host's ticks: a pid is used again."""
    started_ms: int
    """Wall clock, for people."""
    token: str
    """Of this very try: two writers in one process are two."""

    @classmethod
    def here(cls) -> Owner:
        """This process."""
        pid = os.getpid()
        now_ms = time.time_ns() // 1_000_000
        return cls(host=host_name(), pid=pid, born=born(pid), started_ms=now_ms, token=uuid.uuid4().hex)

    def is_dead(self) -> bool:
        """Whether it surely lives no more. False where it is on another host: nobody here can know."""
        return self.host == host_name() and (born(self.pid) or -1) != self.born

    def is_alive(self) -> bool:
        """Whether it surely lives: on this host, and the very process. False where nobody here can know."""
        return self.host == host_name() and born(self.pid) == self.born and self.born > UNKNOWN_TICKS

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host.partition('/')[0]}"


def host_name() -> str:
    """This host, boot and process namespace."""
    return "/".join((socket.gethostname(), _line("/proc/sys/kernel/random/boot_id")[:8], _namespace()))


def born(pid: int) -> int:
    """When a process started, in ticks since the boot; 0 where there is none. A zombie is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0 if Path("/proc/self/stat").exists() or not _is_there(pid) else UNKNOWN_TICKS
    return 0 if fields[0] in ("Z", "X") else int(fields[19])


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
