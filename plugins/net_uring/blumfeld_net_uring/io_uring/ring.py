"""The ring: io_uring spoken directly. Entries go in, one system call submits and waits, completions come out.

Order of use: :meth:`Ring.attach` a callback and get a token; queue operations with it (nothing happens yet);
:meth:`Ring.enter` hands them to the kernel and waits; :meth:`Ring.reap` calls the callbacks. The thread that
    enters first is the only one that may enter, until the ring is closed.

**Memory.** The kernel reads and writes at plain addresses, when it likes, until the operation's last
completion. The caller keeps that memory referenced, in place and (for sends) unchanged until then. The ring
keeps nothing but what
:meth:`Ring.keep` was given, and that until it has been closed and nothing is in flight.

**Completions.** Each operation gives exactly one completion without ``CQE_F_MORE``, its last; a multishot
operation gives others before it. A result below 0 is ``-errno``. A token may be used for any number of
operations, one after the other or at once. It is never given out a second time, so a late completion can't
meet another owner.

**No barriers.** With deferred task run the kernel touches the rings only within ``io_uring_enter``, called by
us. A kernel without it may post completions at any time; then we rely on x86-64's memory order, and refuse
other machines.
"""

from __future__ import annotations

from blumfeld_net_uring.io_uring import abi
from blumfeld_net_uring.io_uring.queues import IGNORED, Completed, Queues
from blumfeld_net_uring.io_uring.system import RingUnavailable

__all__ = ["IGNORED", "Completed", "Ring", "RingUnavailable"]

_pack = abi.ENTRY.pack_into
_pack_group = abi.ENTRY_WITH_GROUP.pack_into


class Ring(Queues):
    """The operations; each call queues one entry. :class:`Queues` has the rest."""

    __slots__ = ()

    def nop(self, token: int, flags: int = 0) -> None:
        """Complete at once, with result 0."""
        _pack(self._sqes, self._slot(), abi.OP_NOP, flags, 0, -1, 0, 0, 0, 0, token)

    def accept(self, token: int, fd: int, socket_flags: int = 0, multishot: bool = False) -> None:
        """Accept connections. The result is the descriptor; the peer's address is not fetched."""
        mode = abi.ACCEPT_MULTISHOT if multishot else 0
        _pack(self._sqes, self._slot(), abi.OP_ACCEPT, 0, mode, fd, 0, 0, 0, socket_flags, token)

    def recv(self, token: int, fd: int, address: int, size: int, flags: int = 0, mode: int = 0) -> None:
        """Receive into the caller's memory. ``mode``: ``RECVSEND_POLL_FIRST`` if no bytes are expected yet."""
        # As _slot, but inlined, because every request comes through here.
        tail = self._tail
        if tail - self._submitted > self._sq_mask:
            self.submit()
        self._tail = tail + 1
        at = (tail & self._sq_mask) << 6
        _pack(self._sqes, at, abi.OP_RECV, 0, mode, fd, 0, address, size, flags, token)

    def recv_group(self, token: int, fd: int, group: int, mode: int = abi.RECV_MULTISHOT) -> None:
        """Receive into buffers that the kernel picks from a group, whose id is ``flags >> CQE_BUFFER_SHIFT``.

        ``mode``: ``RECV_MULTISHOT`` goes on until an error, the end (0), or no buffer (``-ENOBUFS``); 0
        receives once.
        """
        _pack_group(
            self._sqes,
            self._slot(),
            abi.OP_RECV,
            abi.SQE_BUFFER_SELECT,
            mode,
            fd,
            0,
            0,
            0,
            0,
            token,
            group,
        )

    def send(self, token: int, fd: int, address: int, size: int, flags: int = 0) -> None:
        """Send bytes. ``flags`` as in ``send(2)``."""
        tail = self._tail
        if tail - self._submitted > self._sq_mask:
            self.submit()
        self._tail = tail + 1
        at = (tail & self._sq_mask) << 6
        _pack(self._sqes, at, abi.OP_SEND, 0, 0, fd, 0, address, size, flags, token)

    def sendmsg(self, token: int, fd: int, header: int, flags: int = 0) -> None:
        """Gather and send: ``header`` is the address of a ``struct msghdr``. It, its vector and the bytes stay."""
        _pack(self._sqes, self._slot(), abi.OP_SENDMSG, 0, 0, fd, 0, header, 1, flags, token)

    def poll_add(self, token: int, fd: int, events: int, multishot: bool = False) -> None:
        """Complete when one of ``select.POLL…`` holds; the result is the set that holds."""
        mode = abi.POLL_ADD_MULTI if multishot else 0
        _pack(self._sqes, self._slot(), abi.OP_POLL_ADD, 0, 0, fd, 0, 0, mode, events, token)

    def cancel(self, token: int, target: int, every: bool = True) -> None:
        """Cancel operations of token ``target``: all of them (the result is their number, from Linux 5.19),
        or one.

        They complete with ``-ECANCELED`` or with their own result. ``-ENOENT``: there was none.
        """
        self._cancel(token, target, abi.CANCEL_ALL if every else 0)

    def cancel_fd(self, token: int, fd: int) -> None:
        """Cancel all operations on a descriptor, from Linux 5.19. The result is their number."""
        flags = abi.CANCEL_ALL | abi.CANCEL_FD
        _pack(self._sqes, self._slot(), abi.OP_ASYNC_CANCEL, 0, 0, fd, 0, 0, 0, flags, token)
