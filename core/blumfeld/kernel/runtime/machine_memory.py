"""How much memory this machine, or this container, has; and the share of it that network buffers take by default."""

from __future__ import annotations

import os

SHARE = 16
"""One part in so many of the memory."""
SHARE_BYTES_MAX = 256 << 20
"""More isn't taken unasked: 256 frames of 1 MiB, which producers send at most by default, can be in flight at once."""
CGROUP_LIMIT = "/sys/fs/cgroup/memory.max"


def memory_bytes(cgroup_limit: str = CGROUP_LIMIT) -> int:
    """The memory of the machine, or the limit of its control group (cgroup v2) if that is less."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        with open(cgroup_limit, encoding="ascii") as file:
            return min(total, int(file.read()))
    except (OSError, ValueError):  # none, or "max"
        return total


def buffer_bytes_max(frame_bytes_max: int, memory: int) -> int:
    """The bound on network buffers where none is configured: a sixteenth of the memory, 256 MiB at most, and never less
    than one frame.
    """
    return max(frame_bytes_max, min(memory // SHARE, SHARE_BYTES_MAX))
