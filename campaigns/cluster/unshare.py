"""Namespaces of Linux for this process alone."""

from __future__ import annotations

import ctypes
import os
import subprocess

CLONE_NEWNS = 0x00020000
CLONE_NEWNET = 0x40000000
"""As in linux/sched.h."""
_LIBC = ctypes.CDLL(None, use_errno=True)


def leave(kinds: int) -> None:
    """Move into namespaces of our own, that of mounts among them. No thread may run yet: only the calling one moves.

    :raises OSError: this user may not
    """
    _said("unshare", _LIBC.unshare(kinds))
    subprocess.run(["mount", "--make-rprivate", "/"], check=True, capture_output=True)


def join(descriptor: int, kind: int) -> None:
    """Move into the namespace of an open descriptor; raises as :func:`leave`."""
    _said("setns", _LIBC.setns(descriptor, kind))


def _said(call: str, status: int) -> None:
    if status:
        raise OSError(f"{call}(2): {os.strerror(ctypes.get_errno())}")
