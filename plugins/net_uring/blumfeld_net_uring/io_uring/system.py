"""The three system calls of io_uring, through ctypes, and explanations of a refused setup for operators."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from typing import Any

from blumfeld_net_uring.io_uring import abi

_TRIED_SETUPS = (
    abi.SETUP_SUBMIT_ALL
    | abi.SETUP_COOP_TASKRUN
    | abi.SETUP_TASKRUN_FLAG
    | abi.SETUP_SINGLE_ISSUER
    | abi.SETUP_DEFER_TASKRUN,
    abi.SETUP_SUBMIT_ALL | abi.SETUP_COOP_TASKRUN | abi.SETUP_TASKRUN_FLAG | abi.SETUP_SINGLE_ISSUER,
    abi.SETUP_SUBMIT_ALL | abi.SETUP_COOP_TASKRUN | abi.SETUP_TASKRUN_FLAG,
    0,
)
"""Setup flags to try, for Linux 6.1, 6.0, 5.19, and before."""
SETUP_NAMES = {
    abi.SETUP_SINGLE_ISSUER: "single issuer",
    abi.SETUP_DEFER_TASKRUN: "deferred task run",
    abi.SETUP_COOP_TASKRUN: "cooperative task run",
}

# Without argtypes: 0.7 µs cheaper a call. An argument is then a C int or a pointer object; the seventh lies on the
# stack, where an int would leave half of its word undefined, so it must be a c_size_t.
syscall = ctypes.CDLL(None, use_errno=True).syscall


class RingUnavailable(Exception):  # noqa: N818 - the noun says what it is
    """This system provides no ring. ``reason`` is text for the operator."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def register(fd: int, operation: int, argument: Any, count: int) -> None:
    """Call ``io_uring_register(2)``.

    :raises OSError: the kernel's error
    """
    if syscall(abi.SYS_REGISTER, fd, operation, argument, count) < 0:
        raise failure("io_uring_register")


def failure(what: str) -> OSError:
    """The error of the last system call, which has failed."""
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")


def set_up(sq_entries: int, cq_entries: int, without: frozenset[str] = frozenset()) -> tuple[int, abi.Params]:
    """Make a disabled ring with the best modes that the kernel has, except ``without`` (of ``SETUP_NAMES``).

    :raises RingUnavailable: the kernel has none, forbids it, or has too little memory for it
    """
    if sys.byteorder != "little" or sys.maxsize < 1 << 32:
        raise RingUnavailable("io_uring is spoken here on 64-bit little-endian machines only")
    if sys.implementation.name != "cpython":
        raise RingUnavailable(f"io_uring is spoken here by CPython only, not by {sys.implementation.name}")
    missing = sum(flag for flag, name in SETUP_NAMES.items() if name in without)
    number = 0
    for setup in _TRIED_SETUPS:
        if setup & missing:
            continue
        params = abi.Params()
        params.flags = setup | abi.SETUP_CQSIZE | abi.SETUP_CLAMP | abi.SETUP_R_DISABLED
        params.cq_entries = cq_entries
        fd = syscall(abi.SYS_SETUP, sq_entries, ctypes.byref(params))
        if fd >= 0:
            _check_features(fd, params)
            return fd, params
        number = ctypes.get_errno()
        if (
            number != errno.EINVAL
        ):  # The kernel knows the mode, so this mode is not the reason of the refusal.
            break
    raise RingUnavailable(refusal(number))


def _check_features(fd: int, params: abi.Params) -> None:
    needed = abi.FEAT_SINGLE_MMAP | abi.FEAT_NODROP | abi.FEAT_EXT_ARG
    reason = ""
    if params.features & needed != needed:
        reason = "the kernel's io_uring is older than Linux 5.11"
    elif not params.flags & abi.SETUP_DEFER_TASKRUN and os.uname().machine != "x86_64":
        reason = "without deferred task run (Linux 6.1) the ring is used on x86-64 only: it needs that memory order"
    if reason:
        os.close(fd)
        raise RingUnavailable(reason)


def refusal(number: int) -> str:
    """Explains an errno of io_uring_setup to an operator."""
    if number == errno.ENOSYS:
        return "this kernel has no io_uring (ENOSYS)"
    if number in (errno.EPERM, errno.EACCES):
        name = errno.errorcode[number]
        switch = _disabled_switch()
        if switch in ("1", "2"):
            return f"the system forbids io_uring ({name}: sysctl kernel.io_uring_disabled = {switch})"
        return f"the system forbids io_uring ({name}: a seccomp filter, as in many containers, or a security module)"
    if number == errno.ENOMEM:
        return "not enough memory for io_uring (ENOMEM: raise RLIMIT_MEMLOCK, ulimit -l)"
    if number in (errno.EMFILE, errno.ENFILE):
        return f"no file descriptor left for io_uring ({errno.errorcode[number]})"
    return f"io_uring_setup failed: {os.strerror(number)} ({errno.errorcode.get(number, number)})"


def _disabled_switch() -> str:
    try:
        with open("/proc/sys/kernel/io_uring_disabled", encoding="ascii") as switch:
            return switch.read().strip()
    except OSError:
        return ""
