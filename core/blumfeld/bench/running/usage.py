"""What a server's processes use: time, memory, context switches, of the whole process tree, from ``/proc``.

Nothing is sampled, so that looking costs nothing while the server is measured: the kernel keeps totals, and the highest
resident set since it was last reset.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

import attrs

from blumfeld.bench.result import Placement, Usage

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")
_RESET_PEAK = "5"
"""What ``clear_refs`` takes to begin the highest resident set anew (proc_pid_clear_refs(5))."""


@attrs.frozen
class Totals:
    """Since the processes began."""

    cpu_s: float
    """To the nanosecond, while the split below is to the tick."""
    user_s: float
    system_s: float
    rss_bytes: int
    rss_max_bytes: int
    """Since :func:`reset_peak`, or the beginning."""
    voluntary_switches: int
    involuntary_switches: int


_POLICIES = {
    getattr(os, name): name
    for name in ("SCHED_OTHER", "SCHED_BATCH", "SCHED_IDLE", "SCHED_FIFO", "SCHED_RR")
    if hasattr(os, name)
}


def placement_of(process_id: int = 0) -> Placement:
    """The policy and the cores of a process; 0 for this one.

    :raises ProcessLookupError: it has ended
    """
    policy = os.sched_getscheduler(process_id) & ~os.SCHED_RESET_ON_FORK
    return Placement(
        policy=_POLICIES.get(policy, f"policy {policy}"),
        cores=tuple(sorted(os.sched_getaffinity(process_id))),
    )


def tree(leader: int) -> list[int]:
    """A process that leads a session, all in its session, and all that descend from it, sorted.

    A start script that forks, and a server that makes a session of its own, are both followed.
    """
    parents: dict[int, int] = {}
    found = {leader}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
                if int(fields[3]) == leader:
                    found.add(int(entry.name))
    grew = True
    while grew:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
        grew = bool(more)
    return sorted(found)


def reset_peak(pids: Sequence[int]) -> None:
    """Begin the highest resident set anew, where the kernel allows it."""
    for pid in pids:
        with contextlib.suppress(OSError):
            (_PROC / str(pid) / "clear_refs").write_text(_RESET_PEAK)


def totals(pids: Sequence[int]) -> Totals:
    """Of these processes together; one that has ended counts for nothing."""
    found = [one for one in map(_totals_of, pids) if one is not None]
    return Totals(
        cpu_s=sum(one.cpu_s for one in found),
        user_s=sum(one.user_s for one in found),
        system_s=sum(one.system_s for one in found),
        rss_bytes=sum(one.rss_bytes for one in found),
        rss_max_bytes=sum(one.rss_max_bytes for one in found),
        voluntary_switches=sum(one.voluntary_switches for one in found),
        involuntary_switches=sum(one.involuntary_switches for one in found),
    )


def used(before: Totals, after: Totals) -> Usage:
    """What lies between two looks: time by the exact clock, split as the ticks have it."""
    cpu_s = max(0.0, after.cpu_s - before.cpu_s)
    user_s, system_s = after.user_s - before.user_s, after.system_s - before.system_s
    share = user_s / (user_s + system_s) if user_s + system_s > 0 else 0.5
    return Usage(
        user_s=cpu_s * share,
        system_s=cpu_s * (1 - share),
        rss_bytes=after.rss_bytes,
        rss_max_bytes=max(after.rss_max_bytes, after.rss_bytes),
        voluntary_switches=max(0, after.voluntary_switches - before.voluntary_switches),
        involuntary_switches=max(0, after.involuntary_switches - before.involuntary_switches),
    )


def _totals_of(pid: int) -> Totals | None:
    folder = _PROC / str(pid)
    try:
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        status = _fields(folder / "status")
        cpu_s = time.clock_gettime(_cpu_clock(pid))
        tasks = list((folder / "task").iterdir())
    except OSError:
        return None
    voluntary = involuntary = 0
    for task in tasks:
        with contextlib.suppress(OSError):  # a thread that ended meanwhile
            thread = _fields(task / "status")
            voluntary += thread.get("voluntary_ctxt_switches", 0)
            involuntary += thread.get("nonvoluntary_ctxt_switches", 0)
    user_ticks, system_ticks, children_user, children_system = (int(field) for field in fields[11:15])
    children_s = (children_user + children_system) / _TICKS_PER_S
    return Totals(
        cpu_s=cpu_s + children_s,
        user_s=(user_ticks + children_user) / _TICKS_PER_S,
        system_s=(system_ticks + children_system) / _TICKS_PER_S,
        rss_bytes=status.get("VmRSS", 0) * 1024,
        rss_max_bytes=status.get("VmHWM", 0) * 1024,
        voluntary_switches=voluntary,
        involuntary_switches=involuntary,
    )


def _cpu_clock(pid: int) -> int:
    """The id of a process's CPU clock, all threads, as clock_getcpuclockid(3) makes it on Linux."""
    return (~pid << 3) | 2


def _fields(path: Path) -> dict[str, int]:
    found = {}
    for line in path.read_text().splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if words and words[0].isdigit():
            found[name] = int(words[0])
    return found
