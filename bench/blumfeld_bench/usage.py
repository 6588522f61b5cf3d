"""Time, memory and context switches of a server's whole process tree, read from ``/proc``.

Nothing is sampled, so that reading costs nothing while the server is measured: the kernel keeps totals, and the
highest resident set since its last reset.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

from blumfeld_bench.result import Placement, Usage

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")
_RESET_PEAK = "5"
"""Value for ``clear_refs`` that resets the highest resident set (proc_pid_clear_refs(5))."""


class Totals(Usage, frozen=True, kw_only=True):
    """Totals since the processes began; the highest resident set is that since :func:`reset_peak`."""

    cpu_s: float
    """CPU time to the nanosecond; the split into user and system is only to the tick."""


_POLICIES = {
    getattr(os, name): name
    for name in ("SCHED_OTHER", "SCHED_BATCH", "SCHED_IDLE", "SCHED_FIFO", "SCHED_RR")
    if hasattr(os, name)
}


def placement_of(process_id: int = 0) -> Placement:
    """Return the scheduling policy and the cores of a process; 0 is this process.

    :raises ProcessLookupError: the process has ended
    """
    policy = os.sched_getscheduler(process_id) & ~os.SCHED_RESET_ON_FORK
    return Placement(
        policy=_POLICIES.get(policy, f"policy {policy}"),
        cores=tuple(sorted(os.sched_getaffinity(process_id))),
    )


def tree(leader: int) -> list[int]:
    """Return a session's leader, all processes of its session and all their descendants, sorted.

    This finds the server behind a start script that forks, and a server that makes a session of its own.
    """
    parents: dict[int, int] = {}
    tree_pids = {leader}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
                if int(fields[3]) == leader:
                    tree_pids.add(int(entry.name))
    grew = True
    while grew:
        more = {pid for pid, parent in parents.items() if parent in tree_pids} - tree_pids
        tree_pids |= more
        grew = bool(more)
    return sorted(tree_pids)


def reset_peak(pids: Sequence[int]) -> None:
    """Reset the highest resident set, where the kernel allows it."""
    for pid in pids:
        with contextlib.suppress(OSError):
            (_PROC / str(pid) / "clear_refs").write_text(_RESET_PEAK)


def totals(pids: Sequence[int]) -> Totals:
    """Return the sum over these processes; one that has ended counts for nothing."""
    return summed([process_totals for process_totals in map(_totals_of, pids) if process_totals is not None])


def summed(parts: Sequence[Totals]) -> Totals:
    """Return the sum of several totals."""
    return Totals(
        **{
            name: sum(getattr(process_totals, name) for process_totals in parts)
            for name in Totals.__struct_fields__
        }
    )


def used(before: Totals, after: Totals) -> Usage:
    """Return the difference of two readings. The exact clock gives the sum, the ticks its split into user and
    system.
    """
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
        with contextlib.suppress(OSError):  # the thread may have ended meanwhile
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
    """Return the id of a process's CPU clock over all threads, as clock_getcpuclockid(3) computes it on Linux."""
    return (~pid << 3) | 2


def _fields(path: Path) -> dict[str, int]:
    field_values = {}
    for line in path.read_text().splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if words and words[0].isdigit():
            field_values[name] = int(words[0])
    return field_values
