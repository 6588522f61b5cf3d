"""Numbers and structures of the kernel's io_uring interface, as far as this transport uses them.

Source: ``include/uapi/linux/io_uring.h`` and the manual pages ``io_uring_setup(2)``, ``io_uring_enter(2)``
and ``io_uring_register(2)``. They never change; a kernel refuses requests that it does not know.
"""

from __future__ import annotations

import ctypes
import struct

# The three system calls have the same number on every architecture.
SYS_SETUP = 425
SYS_ENTER = 426
SYS_REGISTER = 427

# io_uring_setup
SETUP_CQSIZE = 1 << 3
SETUP_CLAMP = 1 << 4
SETUP_R_DISABLED = 1 << 6
SETUP_SUBMIT_ALL = 1 << 7
SETUP_COOP_TASKRUN = 1 << 8
SETUP_TASKRUN_FLAG = 1 << 9
SETUP_SINGLE_ISSUER = 1 << 12
SETUP_DEFER_TASKRUN = 1 << 13

FEAT_SINGLE_MMAP = 1 << 0
FEAT_NODROP = 1 << 1
FEAT_EXT_ARG = 1 << 8
FEAT_RECVSEND_BUNDLE = 1 << 14

OFFSET_SQES = 0x10000000

# io_uring_enter
ENTER_GETEVENTS = 1 << 0
ENTER_EXT_ARG = 1 << 3
SQ_CQ_OVERFLOW = 1 << 1
SQ_TASKRUN = 1 << 2

# io_uring_register
REGISTER_PROBE = 8
REGISTER_ENABLE_RINGS = 12
REGISTER_PBUF_RING = 22
UNREGISTER_PBUF_RING = 23

# Operations
OP_NOP = 0
OP_POLL_ADD = 6
OP_SENDMSG = 9
OP_ACCEPT = 13
OP_ASYNC_CANCEL = 14
OP_SEND = 26
OP_RECV = 27
OP_SPLICE = 30

# Flags of an entry
SQE_BUFFER_SELECT = 1 << 5

POLL_ADD_MULTI = 1 << 0
CANCEL_ALL = 1 << 0
CANCEL_FD = 1 << 1
CANCEL_ANY = 1 << 2
RECVSEND_POLL_FIRST = 1 << 0
RECV_MULTISHOT = 1 << 1
ACCEPT_MULTISHOT = 1 << 0

# Flags of a completion
CQE_F_BUFFER = 1 << 0
CQE_F_MORE = 1 << 1
CQE_F_SOCK_NONEMPTY = 1 << 2
CQE_BUFFER_SHIFT = 16

OP_SUPPORTED = 1 << 0

ENTRY_BYTES = 64
ENTRY = struct.Struct("=BBHiQQIIQ24x")
"""opcode, flags, ioprio, fd, off, addr, len, operation's flags, user_data; the rest zero."""
ENTRY_WITH_GROUP = struct.Struct("=BBHiQQIIQH22x")
"""As ``ENTRY``, with the buffer group."""

COMPLETION_BYTES = 16
COMPLETION = struct.Struct("=QiI")
"""user_data, result (negative: an errno), flags."""

TIMESPEC = struct.Struct("=qq")
WAIT_ARGUMENT = struct.Struct("=QIIQ")
"""struct io_uring_getevents_arg: signal mask, its size, pad, address of a timespec."""

MESSAGE = struct.Struct("=QQQQQQi4x")
"""struct msghdr: name, its length, address and length of the vector, control, its length, flags."""
VECTOR = struct.Struct("=QQ")
"""struct iovec: address, length."""

BUFFER = struct.Struct("=QIH")
"""struct io_uring_buf without its last two bytes. In the first buffer these are the tail of the buffer ring.
"""
BUFFER_BYTES = 16
BUFFER_TAIL_OFFSET = 14


class SqOffsets(ctypes.Structure):
    """struct io_sqring_offsets."""

    _fields_ = [
        ("head", ctypes.c_uint32),
        ("tail", ctypes.c_uint32),
        ("ring_mask", ctypes.c_uint32),
        ("ring_entries", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("dropped", ctypes.c_uint32),
        ("array", ctypes.c_uint32),
        ("resv1", ctypes.c_uint32),
        ("user_addr", ctypes.c_uint64),
    ]


class CqOffsets(ctypes.Structure):
    """struct io_cqring_offsets."""

    _fields_ = [
        ("head", ctypes.c_uint32),
        ("tail", ctypes.c_uint32),
        ("ring_mask", ctypes.c_uint32),
        ("ring_entries", ctypes.c_uint32),
        ("overflow", ctypes.c_uint32),
        ("cqes", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("resv1", ctypes.c_uint32),
        ("user_addr", ctypes.c_uint64),
    ]


class Params(ctypes.Structure):
    """struct io_uring_params."""

    _fields_ = [
        ("sq_entries", ctypes.c_uint32),
        ("cq_entries", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("sq_thread_cpu", ctypes.c_uint32),
        ("sq_thread_idle", ctypes.c_uint32),
        ("features", ctypes.c_uint32),
        ("wq_fd", ctypes.c_uint32),
        ("resv", ctypes.c_uint32 * 3),
        ("sq_off", SqOffsets),
        ("cq_off", CqOffsets),
    ]


class BufferRegistration(ctypes.Structure):
    """struct io_uring_buf_reg."""

    _fields_ = [
        ("ring_addr", ctypes.c_uint64),
        ("ring_entries", ctypes.c_uint32),
        ("bgid", ctypes.c_uint16),
        ("flags", ctypes.c_uint16),
        ("resv", ctypes.c_uint64 * 3),
    ]
