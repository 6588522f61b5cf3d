"""An event loop of one thread that waits for sockets and for due times, precise to a few microseconds, and counts its
idle time.

``epoll_wait`` has a resolution of milliseconds. So the loop sleeps in ``select`` on the epoll descriptor, which has
microseconds, with the kernel's timer slack at its least. For the last :attr:`Loop.spin_ns` it polls without sleeping.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from time import monotonic_ns

from blumfeld_bench.security import TlsSocket

SPIN_NS = 60_000
"""Time that a sleeping core takes to wake up on a virtual machine."""
SPIN_SHARE = 0.3
"""Largest share of the time between two requests that is spent polling: more would take the core from a server
with many threads.
"""
COARSE_NS = 2_000_000
"""Waits longer than this use ``epoll_wait``, which rounds up to a millisecond."""
CALL_NS = 4_000
"""A wait no longer than this was no wait, but the system call itself."""
EPOLLIN = select.EPOLLIN
EPOLLOUT = select.EPOLLOUT

Handler = Callable[[int], None]


class Loop:
    """Sockets and their handlers. Create the loop first, while descriptors are below ``select``'s limit of 1024."""

    def __init__(self) -> None:
        self.idle_ns = 0
        """Time without work; polls that find nothing count as idle."""
        self.spin_ns = SPIN_NS
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}

    def add(self, sock: socket.socket, handler: Handler) -> None:
        """Call ``handler(event mask)`` whenever the socket can be read."""
        self._handlers[sock.fileno()] = sock.drained(handler) if isinstance(sock, TlsSocket) else handler
        self._epoll.register(sock.fileno(), EPOLLIN)

    def watch_writing(self, sock: socket.socket, wanted: bool) -> None:
        """Call the handler also when the socket can be written to, or stop that."""
        self._epoll.modify(sock.fileno(), EPOLLIN | EPOLLOUT if wanted else EPOLLIN)

    def remove(self, sock: socket.socket) -> None:
        """Forget a socket, before it is closed."""
        if self._handlers.pop(sock.fileno(), None) is not None:
            self._epoll.unregister(sock.fileno())

    def serve(self, until_ns: int, events_max: int, now_ns: int = 0) -> int:
        """Handle ready sockets, at most ``events_max``; return their number. If none is ready, wait until ``until_ns``,
        to the microsecond.

        :param now_ns: if given, nothing is due soon: wait at once, with one system call instead of two
        """
        if now_ns:
            events = self._wait(now_ns, until_ns, events_max)
        else:
            events = self._epoll.poll(0, events_max)
            if not events:
                events = self._wait(monotonic_ns(), until_ns, events_max)
        handlers = self._handlers
        for descriptor, mask in events:
            handler = handlers.get(descriptor)
            if handler is not None:
                handler(mask)
        return len(events)

    def _wait(self, began: int, until_ns: int, events_max: int) -> list[tuple[int, int]]:
        now = began
        events: list[tuple[int, int]] = []
        while not events and now < until_ns:
            gap = until_ns - now
            if gap > COARSE_NS:
                events = self._epoll.poll((gap - COARSE_NS) / 1e9, events_max)
            else:
                if gap > self.spin_ns:
                    select.select((self._epoll,), (), (), (gap - self.spin_ns) / 1e9)
                events = self._epoll.poll(0, events_max)
            now = monotonic_ns()
        if now - began > CALL_NS:
            self.idle_ns += now - began
        return events

    def close(self) -> None:
        """Close the epoll descriptor; the owners of the sockets close those."""
        self._epoll.close()
