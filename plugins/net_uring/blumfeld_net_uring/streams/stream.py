"""A stream on the ring: it sends at most one entry a turn, and it closes when the kernel holds none of its
memory.

:mod:`blumfeld_net_uring.streams.receivers` has the ways to receive.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

from blumfeld.net.connections.stream import Stream
from blumfeld.net.readiness.streams import Socket
from blumfeld_net_uring.io_uring.ring import IGNORED
from blumfeld_net_uring.streams.send_queue import UringSendQueue, error_of
from blumfeld_net_uring.streams.turn import UringTurn

SLOTS = (
    "_armed",
    "_cancelled",
    "_fd",
    "_polling",
    "_queue",
    "_reason",
    "_recv_token",
    "_socket",
    "_poll_token",
)
"""Slots of every concrete class."""


class UringStream(Stream):
    """The sending and closing half. The concrete classes have its slots, :data:`SLOTS`."""

    if not TYPE_CHECKING:  # a type checker would take it for the whole list
        __slots__ = ()

    turn: UringTurn
    _socket: Socket
    _fd: int
    _queue: UringSendQueue
    """The queue below the byte layer, if there is one."""
    _recv_token: int
    _poll_token: int
    _armed: bool
    """Whether a receiving entry is in flight."""
    _cancelled: bool
    """Whether that entry was cancelled and has not ended yet."""
    _polling: bool
    """Whether an entry waits for the socket to be writable."""
    _reason: str

    def attach(self, sock: Socket, queue: UringSendQueue) -> None:
        """Take the socket. Called once, when the stream is made."""
        ring = self.turn.ring
        self._socket = sock
        self._fd = sock.fileno()
        self._queue = queue
        self._armed = self._cancelled = self._polling = False
        self._reason = ""
        self._recv_token = ring.attach(self._received)
        self._poll_token = ring.attach(self._writable)
        queue.token = ring.attach(self._sent if queue is self._sending else self._sent_in_part)

    def _received(self, result: int, flags: int) -> None:
        raise NotImplementedError

    # Sending

    def watch_sending(self) -> None:
        """Wait until the socket is writable, if bytes are unsent and no entry in flight covers them."""
        if self._queue.flight is None and self._sending.unsent_bytes and not self._polling and not self.dead:
            self._polling = True
            self.turn.ring.poll_add(self._poll_token, self._fd, select.POLLOUT)

    def _sent(self, result: int, flags: int) -> None:
        queue = self._queue
        if result != queue.unsent_bytes or self.dead:
            self._sent_in_part(result, flags)
            return
        queue.flight = None
        queue.unsent_bytes = 0
        if self._stall or self._ending is not None:
            self.drained()
            self.check_ending()

    def _sent_in_part(self, result: int, flags: int) -> None:
        queue = self._queue
        if self.dead:
            queue.flight = None
            self._let_go()
            return
        try:
            queue.completed(result)
            if result > 0:
                self._sending.push()
        except OSError as error:
            self.die(f"send: {error.strerror or error}")
            return
        if result > 0:
            self._moved()
        else:
            self.watch_sending()

    def _writable(self, result: int, flags: int) -> None:
        self._polling = False
        if self.dead:
            self._let_go()
            return
        before = self._sending.unsent_bytes
        try:
            if result < 0:
                raise error_of(result)
            self._sending.push()
        except OSError as error:
            self.die(f"send: {error.strerror or error}")
            return
        if self._sending.unsent_bytes < before:
            self._moved()
        else:
            self.watch_sending()

    def _moved(self) -> None:
        """The socket took some of the unsent bytes."""
        turn = self.turn
        if not turn.begun:
            turn.begin()
        self._active_ms = turn.now_ms
        self.watch_sending()
        self.drained()
        self.check_ending()

    # Closing

    def hang_up(self, reason: str) -> None:
        """Cancel all entries in flight, and close when they have completed."""
        self._reason = reason
        ring = self.turn.ring
        if self._armed and not self._cancelled:
            self._cancelled = True
            ring.cancel(IGNORED, self._recv_token)
        if self._polling:
            ring.cancel(IGNORED, self._poll_token)
        if self._queue.flight is not None:
            ring.cancel(IGNORED, self._queue.token)
        self._let_go()

    def _let_go(self) -> None:
        """Handle a completion on a dead stream: close it after the last one."""
        if self._armed or self._polling or self._queue.flight is not None:
            return
        ring = self.turn.ring
        for token in (self._recv_token, self._poll_token, self._queue.token):
            ring.detach(token)
        self._socket.close()
        self.hung_up(self._reason)
