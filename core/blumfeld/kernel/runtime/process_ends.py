"""Whether a process of this machine has ended. An edge module: it needs Linux's /proc."""

from __future__ import annotations

import os


def has_ended(pid: int) -> bool:
    """Return whether no thread of this process is left, so that its ports and files are free.

    The first thread of a killed process may be a zombie while another one still ends, and holds what they share.
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            state = file.read().rpartition(")")[2].split()[0]
        return state in "ZX" and len(os.listdir(f"/proc/{pid}/task")) <= 1
    except OSError:
        return True
