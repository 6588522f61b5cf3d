"""Readiness without the detour: an asyncio loop whose selector calls the transport's callbacks itself.

On asyncio's own path each ready socket costs a selector key, a handle and its context, and what a callback defers to
the end of the turn waits for one more poll. Here the sockets of the transport lie in an epoll of ours, and their
callbacks run inside ``select``: all of a poll, one after the other; what they defer runs right after it. Everything
else (the loop's wake-up pipe, connecting sockets) lies in asyncio's ordinary selector, which ours watches as one more
descriptor.

Only public interfaces of asyncio and selectors are used. Under any other loop the transport uses its ``add_reader``.
"""

from __future__ import annotations

import asyncio
import select
import selectors
import time
from collections.abc import Callable

from blumfeld.net.readiness.selector import TakenSelector
from blumfeld.net.readiness.streams import Callback, Readiness

EVENTS_MAX = 1024
"""Taken from one poll; the others come first in the next."""


class TurnSelector(TakenSelector):
    """A selector for asyncio with callbacks of its own. They may raise: ``on_error`` is told."""

    def __init__(self) -> None:
        super().__init__()
        self._epoll = select.epoll()
        self._others_fd = self._others.fileno()
        self._epoll.register(self._others_fd, select.EPOLLIN)
        self._readers: dict[int, Callback] = {}
        self._writers: dict[int, Callback] = {}
        self._masks: dict[int, int] = {}
        self.on_error: Callable[[Exception], None] | None = None
        self.busy_poll_us = 0
        """Poll without waiting for so long after something last happened."""

    # The transport's side.

    def add_reader(self, fd: int, callback: Callback, /) -> None:
        """See :class:`Readiness`."""
        self._readers[fd] = callback
        self._watch(fd, self._masks.get(fd, 0) | select.EPOLLIN)

    def remove_reader(self, fd: int, /) -> None:
        """See :class:`Readiness`."""
        if self._readers.pop(fd, None) is not None:
            self._watch(fd, self._masks[fd] & ~select.EPOLLIN)

    def add_writer(self, fd: int, callback: Callback, /) -> None:
        """See :class:`Readiness`."""
        self._writers[fd] = callback
        self._watch(fd, self._masks.get(fd, 0) | select.EPOLLOUT)

    def remove_writer(self, fd: int, /) -> None:
        """See :class:`Readiness`."""
        if self._writers.pop(fd, None) is not None:
            self._watch(fd, self._masks[fd] & ~select.EPOLLOUT)

    def _watch(self, fd: int, mask: int) -> None:
        old = self._masks.get(fd, 0)
        if not mask:
            del self._masks[fd]
            self._epoll.unregister(fd)
            return
        self._masks[fd] = mask
        if not old:
            self._epoll.register(fd, mask)
        elif mask != old:
            self._epoll.modify(fd, mask)

    # asyncio's side.

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait, call the callbacks of our descriptors, and give back which of the others are ready."""
        readers, writers = self._readers, self._writers
        out, into = select.EPOLLOUT, select.EPOLLIN
        ready: list[tuple[selectors.SelectorKey, int]] = []
        events = self._busy_poll(timeout) if self.busy_poll_us else self._epoll.poll(timeout, EVENTS_MAX)
        self._polling = True
        for fd, event in events:
            try:
                if event & ~out and (callback := readers.get(fd)) is not None:
                    callback()
                if event & ~into and (callback := writers.get(fd)) is not None:
                    callback()
            except Exception as error:
                self.raised(error)
            if fd == self._others_fd:
                ready = self._others.select(0)
        self._polling = False
        if self._after_poll:
            self.call_after_poll()
        return ready

    def raised(self, error: Exception) -> None:
        """Tell ``on_error``; with none, raise it."""
        if self.on_error is None:
            self._polling = False
            raise error
        self.on_error(error)

    def _busy_poll(self, timeout: float | None) -> list[tuple[int, int]]:
        """As ``epoll.poll``, but awake for the first of the wait. A turn in which something happened comes here
        again, so that the time is counted from the last event.
        """
        poll = self._epoll.poll
        events = poll(0, EVENTS_MAX)
        if events or (timeout is not None and timeout <= 0):
            return events
        began = time.monotonic()
        awake_s = self.busy_poll_us / 1e6
        if timeout is not None:
            awake_s = min(awake_s, timeout)
        while (passed := time.monotonic() - began) < awake_s:
            if events := poll(0, EVENTS_MAX):
                return events
        return poll(None if timeout is None else max(0.0, timeout - passed), EVENTS_MAX)

    def close(self) -> None:
        """Give both descriptors back."""
        super().close()
        self._epoll.close()


class TurnLoop(asyncio.SelectorEventLoop):
    """asyncio's loop on a :class:`TurnSelector`."""

    def __init__(self) -> None:
        self.readiness = TurnSelector()
        super().__init__(self.readiness)
        self.readiness.on_error = self._report

    def call_after_poll(self, callback: Callback, /) -> None:
        """See ``blumfeld.spi.transport.TurnEndingLoop``."""
        if not self.readiness.after_poll(callback):
            self.call_soon(callback)

    def _report(self, error: Exception) -> None:
        self.call_exception_handler({"message": "a readiness callback raised", "exception": error})


def new_loop() -> asyncio.AbstractEventLoop:
    """The loop that serves the transport best on this system."""
    return TurnLoop() if hasattr(select, "epoll") else asyncio.new_event_loop()


def readiness_of(loop: asyncio.AbstractEventLoop) -> Readiness:
    """Returns the object that calls the transport under this loop."""
    return loop.readiness if isinstance(loop, TurnLoop) else loop
