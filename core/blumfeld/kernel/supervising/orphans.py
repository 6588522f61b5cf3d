"""A node ends with its supervisor. An edge module: it asks the kernel for a signal."""

from __future__ import annotations

import os
import signal

PR_SET_PDEATHSIG = 1


def stop_with(supervisor_pid: int) -> bool:
    """Ask for SIGHUP when the supervisor dies, so that none of its nodes is left alone. Only Linux can do it.

    It isn't SIGTERM, because the kernel signals once for each thread that the supervisor had, and a second SIGTERM asks
    a node to stop at once.

    :return: whether the supervisor lives
    """
    try:
        import ctypes

        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is inherited as one to ignore
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGHUP)
    except (ImportError, OSError, AttributeError):
        return True
    return os.getppid() == supervisor_pid  # it may have died before the request
