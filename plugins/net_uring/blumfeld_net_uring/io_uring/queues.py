"""The two queues of a ring: tokens, submit and wait, completions to their callbacks, and a close that is safe.

What is promised stands in :mod:`blumfeld_net_uring.io_uring.ring`, which adds the operations.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import time
from array import array
from collections.abc import Callable, Iterable
from typing import Any

from blumfeld_net_uring.io_uring import abi
from blumfeld_net_uring.io_uring.system import SETUP_NAMES, failure, register, set_up, syscall

Completed = Callable[[int, int], None]
"""(result, flags): an operation with this token has completed, or goes on (``CQE_F_MORE``)."""

SQ_ENTRIES = 1024
CQ_ENTRIES = 8192
"""More than one turn ever needs. Further completions stay in the kernel's memory: slower, but not lost."""
DRAIN_SECONDS_MAX = 5.0
IGNORED = 0
"""Token of operations with an unused result."""

_EXPECTED = (0, errno.ETIME, errno.EINTR, errno.EBUSY, errno.EAGAIN, errno.EBADFD)
"""Time or a signal ended the wait; completions wait to be reaped; no memory at the moment; not entered yet."""
_U32 = 0xFFFFFFFF
_ENTER = abi.SYS_ENTER
_GETEVENTS = abi.ENTER_GETEVENTS
_WAIT_FLAGS = abi.ENTER_GETEVENTS | abi.ENTER_EXT_ARG
_WAIT_BYTES = ctypes.c_size_t(abi.WAIT_ARGUMENT.size)

_unpack = abi.COMPLETION.unpack_from
_unpack_run = abi.COMPLETION.iter_unpack
_pack = abi.ENTRY.pack_into
_pack_time = abi.TIMESPEC.pack_into


class Queues:
    """One io_uring, disabled until it is first entered.

    ``setup_without`` are names of :attr:`setup` to do without, as an older kernel does (for tests).

    :raises RingUnavailable: the kernel has none, forbids it, or has too little memory for it.
    """

    __slots__ = (
        "_callbacks",
        "_cq",
        "_cq_base",
        "_cq_head",
        "_cq_head_at",
        "_cq_mask",
        "_cq_tail_at",
        "_finals",
        "_kept",
        "_left",
        "_maps",
        "_next_token",
        "_sq_flags_at",
        "_sq_head_at",
        "_sq_mask",
        "_sq_tail_at",
        "_sqes",
        "_submitted",
        "_tail",
        "_time",
        "_wait_argument",
        "_words",
        "cq_entries",
        "fd",
        "features",
        "on_error",
        "setup_flags",
        "sq_entries",
        "strays",
    )

    def __init__(
        self,
        sq_entries: int = SQ_ENTRIES,
        cq_entries: int = CQ_ENTRIES,
        setup_without: Iterable[str] = (),
    ) -> None:
        self.fd, params = set_up(sq_entries, cq_entries, frozenset(setup_without))
        self.features: int = params.features
        self.setup_flags: int = params.flags
        self.sq_entries: int = params.sq_entries
        self.cq_entries: int = params.cq_entries
        self.on_error: Callable[[Exception], None] | None = None
        """Called with an exception that a callback raised. Without it :meth:`reap` raises the exception and
        continues at the next call.
        """
        self.strays = 0
        """Number of completions with a detached token."""
        self._callbacks: dict[int, Completed] = {}
        self._next_token = IGNORED + 1
        self._left: list[tuple[int, int, int]] = []
        self._kept: list[Any] = []
        self._tail: int = 0
        self._submitted: int = 0
        self._finals: int = 0
        self._cq_head: int = 0
        self._map(params)

    def _map(self, params: abi.Params) -> None:
        sq, cq = params.sq_off, params.cq_off
        size = max(sq.array + params.sq_entries * 4, cq.cqes + params.cq_entries * abi.COMPLETION_BYTES)
        rings = mmap.mmap(self.fd, size)
        sqes = mmap.mmap(self.fd, params.sq_entries * abi.ENTRY_BYTES, offset=abi.OFFSET_SQES)
        times = mmap.mmap(-1, mmap.PAGESIZE)
        self._maps = (rings, sqes, times)
        self._cq = memoryview(rings)
        self._words = self._cq.cast("I")
        self._sqes = memoryview(sqes)
        self._time = memoryview(times)
        slots = sq.array // 4  # slot i of the queue is always entry i
        self._words[slots : slots + params.sq_entries] = memoryview(array("I", range(params.sq_entries)))
        self._sq_head_at, self._sq_tail_at = sq.head // 4, sq.tail // 4
        self._sq_flags_at: int = sq.flags // 4
        self._sq_mask: int = params.sq_entries - 1
        self._cq_head_at, self._cq_tail_at = cq.head // 4, cq.tail // 4
        self._cq_base, self._cq_mask = cq.cqes, params.cq_entries - 1
        address = ctypes.addressof(ctypes.c_char.from_buffer(times))
        abi.WAIT_ARGUMENT.pack_into(times, abi.TIMESPEC.size, 0, 0, 0, address)
        self._wait_argument = ctypes.c_void_p(address + abi.TIMESPEC.size)

    @property
    def setup(self) -> tuple[str, ...]:
        """Names of the setup modes that the kernel granted."""
        return tuple(name for flag, name in SETUP_NAMES.items() if self.setup_flags & flag)

    @property
    def in_flight(self) -> int:
        """Number of operations without their last completion reaped."""
        return self._tail - self._finals

    @property
    def queued(self) -> int:
        """Number of operations that wait to be submitted."""
        return self._tail - self._submitted

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self.fd < 0

    # Tokens

    def attach(self, callback: Completed) -> int:
        """Returns a token. Completions with it go to ``callback``."""
        token = self._next_token
        self._next_token = token + 1
        self._callbacks[token] = callback
        return token

    def detach(self, token: int) -> None:
        """Completions of this token are dropped from now on, and counted in ``strays``.

        What they hold is lost with them: keep the callback until the last completion of an accept (the new
        descriptor) and of a receive with a buffer group (the buffer).
        """
        self._callbacks.pop(token, None)

    def keep(self, thing: Any) -> None:
        """Hold a reference until the ring is closed and nothing is in flight. Its ``release()`` is called then."""
        self._kept.append(thing)

    def _slot(self) -> int:
        tail = self._tail
        if tail - self._submitted > self._sq_mask:
            self.submit()
        self._tail = tail + 1
        return (tail & self._sq_mask) << 6

    def unkeep(self, thing: Any) -> None:
        """Hold it no longer: no operation in flight uses it."""
        self._kept = [kept for kept in self._kept if kept is not thing]

    # The kernel's turn

    def enter(self, timeout_ns: int | None) -> None:
        """Submit what is queued, then wait for one completion: for ever (None), so long, or (0) not at all.

        A send's completion ends the wait too, though it mostly comes with the submission. (To wait for one
        more than those halves the system calls of a single connection, and its round trips became no shorter:
        those completions are work for while the peer thinks.) One call brings what completed at once and up
        to 20 of those that waited, a limit of newer kernels; the others come with the next call. (Asking for
        more in one call took no less time.)

        Returns early when a signal came. Then, and after the timeout, there may be nothing to reap.

        :raises OSError: called by another thread than before (EEXIST), or after :meth:`close` (EBADF).
        """
        tail = self._tail
        count = tail - self._submitted
        if count:
            self._words[self._sq_tail_at] = tail & _U32
        if self._left:
            timeout_ns = 0
        if timeout_ns is None:
            done = syscall(_ENTER, self.fd, count, 1, _GETEVENTS, None, 0)
        elif timeout_ns <= 0:
            done = syscall(_ENTER, self.fd, count, 0, _GETEVENTS, None, 0)
        else:
            _pack_time(self._time, 0, timeout_ns // 1_000_000_000, timeout_ns % 1_000_000_000)
            done = syscall(_ENTER, self.fd, count, 1, _WAIT_FLAGS, self._wait_argument, _WAIT_BYTES)
        if done == count:
            self._submitted = tail
        elif self._settle(done):
            self.enter(timeout_ns)

    def submit(self, room: int = 1) -> None:
        """Submit queued entries without waiting until ``room`` entries fit. A full queue calls this itself.

        :raises OSError: the kernel takes nothing (EAGAIN: out of memory)
        """
        for _ in range(3):
            self._words[self._sq_tail_at] = self._tail & _U32
            done = syscall(_ENTER, self.fd, self._tail - self._submitted, 0, 0, None, 0)
            if not self._settle(done) and self._tail + room - self._submitted <= self.sq_entries:
                return
        raise OSError(errno.EAGAIN, "io_uring: the kernel takes no more entries")

    def _settle(self, done: int) -> bool:
        """Read how many entries the kernel took. Returns whether to try again."""
        number = ctypes.get_errno() if done < 0 else 0
        if number not in _EXPECTED:
            raise failure("io_uring_enter")
        head = self._words[self._sq_head_at]
        self._submitted = self._tail - ((self._tail - head) & _U32)
        if number != errno.EBADFD:
            return False
        # The ring is made but was not entered: this thread becomes the issuer.
        register(self.fd, abi.REGISTER_ENABLE_RINGS, None, 0)
        return True

    @property
    def idle(self) -> bool:
        """Whether :meth:`enter` would find no completion now. Makes no system call; for busy polling."""
        words = self._words
        if words[self._cq_tail_at] != self._cq_head or self._left:
            return False
        return not words[self._sq_flags_at] & (abi.SQ_TASKRUN | abi.SQ_CQ_OVERFLOW)

    def reap(self) -> int:
        """Call the callbacks of completions. Returns their number.

        Callbacks may queue operations. Their completions come with a later call.
        """
        head = self._cq_head
        tail = self._words[self._cq_tail_at]
        if head != tail:
            at = self._cq_base + ((head & self._cq_mask) << 4)
            if tail - head == 1:
                self._left.append(_unpack(self._cq, at))
            else:
                self._take_run(head, tail, at)
            # All completions are taken before the first callback, so the queue has room for whatever it
            # queues.
            self._words[self._cq_head_at] = self._cq_head = tail
        elif not self._left:
            return 0
        return self._dispatch()

    def _take_run(self, head: int, tail: int, at: int) -> None:
        count = (tail - head) & _U32
        first = min(count, self._cq_mask + 1 - (head & self._cq_mask))
        self._left += _unpack_run(self._cq[at : at + (first << 4)])
        if first < count:
            self._left += _unpack_run(self._cq[self._cq_base : self._cq_base + ((count - first) << 4)])

    def _dispatch(self) -> int:
        entries, self._left = self._left, []
        find = self._callbacks.get
        more = done = 0
        try:
            for token, result, flags in entries:
                done += 1
                if flags & 2:  # CQE_F_MORE
                    more += 1
                callback = find(token)
                if callback is None:
                    self.strays += token != IGNORED
                    continue
                try:
                    callback(result, flags)
                except Exception as error:
                    if self.on_error is None:
                        raise
                    self.on_error(error)
        finally:
            self._finals += done - more
            if done != len(entries):
                self._left = entries[done:]
        return done

    # Closing

    def close(self) -> bool:
        """Cancel what is in flight, wait until the kernel has let go of all memory, and give everything back.

        No callback is called any more; what was queued and not submitted is never done. Call it on the ring's
        thread. Returns whether the kernel let go. If not (an operation that can't be cancelled ran on for
        ``DRAIN_SECONDS_MAX``, or it is the wrong thread), what :meth:`keep` was given is leaked on purpose:
        the kernel must not write into memory that has another owner.
        """
        if self.fd < 0:
            return True
        tokens, self._callbacks = list(self._callbacks), {}
        self._left, left = [], self._left
        self._finals += sum(not flags & abi.CQE_F_MORE for _, _, flags in left)
        self._tail = self._submitted
        drained = self._drain(tokens)
        os.close(self.fd)
        self.fd = -1
        for view in (self._words, self._cq, self._sqes, self._time):
            view.release()
        for memory in self._maps:
            memory.close()
        kept, self._kept = self._kept, []
        for thing in kept:
            if drained:
                thing.release()
            else:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
        return drained

    def _drain(self, tokens: Iterable[int]) -> bool:
        if not self.in_flight:
            return True
        results: list[int] = []
        everything = self.attach(lambda result, flags: results.append(result))
        try:
            self._cancel(everything, 0, abi.CANCEL_ALL | abi.CANCEL_ANY)
            deadline = time.monotonic() + DRAIN_SECONDS_MAX
            while self.in_flight and time.monotonic() < deadline:
                self.enter(50_000_000)
                self.reap()
                if results and results.pop() == -errno.EINVAL:  # before Linux 5.19
                    for token in tokens:
                        self._cancel(IGNORED, token, 0)
        except OSError:
            return False
        return not self.in_flight

    def _cancel(self, token: int, target: int, flags: int) -> None:
        _pack(self._sqes, self._slot(), abi.OP_ASYNC_CANCEL, 0, 0, -1, 0, target, 0, flags, token)
