"""A node ends with its supervisor. An edge module: it asks the kernel for a signal."""

from __future__ import annotations

import os
import signal

PR_SET_PDEATHSIG = 1


def stop_with(supervisor_pid: int) -> bool:
    """Ask for SIGTERM when the supervisor dies, so that none of its nodes is left alone. Only Linux can do it.

    :return: whether the supervisor lives
    """
    try:
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    except (ImportError, OSError, AttributeError):
        return True
    return os.getppid() == supervisor_pid  # it may have died before the request
