"""The memory of this machine or container, and the share of it for network buffers by default."""

from __future__ import annotations

import os

SHARE = 16
"""Network buffers may take the memory divided by this."""
SHARE_BYTES_MAX = 256 << 20
"""Upper bound of the default: enough for 256 frames of 1 MiB, the largest request of a producer by default."""
CGROUP_LIMIT = "/sys/fs/cgroup/memory.max"


def memory_bytes(cgroup_limit: str = CGROUP_LIMIT) -> int:
    """Returns the memory of the machine, or the limit of its control group (cgroup v2) if that is less."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        with open(cgroup_limit, encoding="ascii") as file:
            return min(total, int(file.read()))
    except (OSError, ValueError):  # no such file, or "max", which means no limit
        return total


def buffer_bytes_max(frame_bytes_max: int, memory: int) -> int:
    """Returns the default bound on network buffers: a sixteenth of the memory, at most 256 MiB, at least one frame."""
    return max(frame_bytes_max, min(memory // SHARE, SHARE_BYTES_MAX))
