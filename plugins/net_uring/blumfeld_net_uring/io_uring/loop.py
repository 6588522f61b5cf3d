"""asyncio's loop on the ring: one system call a turn submits everything that was queued and waits for what
comes.

The ring stands in the place of the loop's selector. Its completions call the transport's callbacks inside
``select``; what they defer with ``call_soon`` runs right after it, and what that queues is submitted by the
next ``select``, in the call that waits. Everything else (the loop's wake-up pipe, connecting sockets, pipes
of child processes) lies in an ordinary selector, whose descriptor is polled by one entry of the ring: while
nothing of them is ready they cost nothing.

The ring's thread is the one that runs the loop first. Only public interfaces of asyncio and selectors are
used.
"""

from __future__ import annotations

import asyncio
import select
import selectors
import time
from collections.abc import Callable, Iterable

import attrs

from blumfeld.net.readiness.selector import TakenSelector
from blumfeld_net_uring.io_uring.probe import Probe, names_of, probe
from blumfeld_net_uring.io_uring.ring import Ring, RingUnavailable

Ready = list[tuple[selectors.SelectorKey, int]]


class UringSelector(TakenSelector):
    """A selector for asyncio that waits in ``io_uring_enter``. It owns the ring and closes it.

    ``busy_poll_us`` may be set at any time: before the thread sleeps it looks for completions for so long
    after the last one. It saves the wake-up of an idle core, and costs a core; workers of ``offload`` share
    its time.
    """

    def __init__(self, ring: Ring) -> None:
        super().__init__()
        self.ring = ring
        self.busy_poll_us = 0
        self._busy_until_ns = 0
        self._others_ready = False
        self._others_token = ring.attach(self._on_others)
        self._watch_others()

    def select(self, timeout: float | None = None) -> Ready:
        """Submit, wait, run the callbacks of completions. Returns the ready files of the ordinary selector."""
        timeout_ns = None if timeout is None else int(timeout * 1e9)
        self._polling = True
        try:
            if self.busy_poll_us:
                self._select_busily(timeout_ns)
            else:
                self.ring.enter(timeout_ns)
                self.ring.reap()
        finally:
            self._polling = False
        if self._after_poll:
            self.call_after_poll()
        if not self._others_ready:
            return []
        self._others_ready = False
        ready = self._others.select(0)
        self._watch_others()
        return ready

    def raised(self, error: Exception) -> None:
        """Report the error to the ring's ``on_error``; raise it if there is none."""
        if self.ring.on_error is None:
            raise error
        self.ring.on_error(error)

    def _select_busily(self, timeout_ns: int | None) -> None:
        ring = self.ring
        completions = 0
        if ring.queued or not ring.idle:
            ring.enter(0)
            completions = ring.reap()
        if not completions:
            now_ns = time.monotonic_ns()
            deadline_ns = None if timeout_ns is None else now_ns + timeout_ns
            end_ns = self._busy_until_ns if deadline_ns is None else min(self._busy_until_ns, deadline_ns)
            while now_ns < end_ns and ring.idle:
                now_ns = time.monotonic_ns()
            ring.enter(None if deadline_ns is None else max(0, deadline_ns - now_ns))
            completions = ring.reap()
        if completions:
            self._busy_until_ns = time.monotonic_ns() + self.busy_poll_us * 1000

    def _on_others(self, result: int, flags: int) -> None:
        self._others_ready = True

    def _watch_others(self) -> None:
        # Not multishot: a new poll reports files that are still ready, as a level-triggered selector must.
        self.ring.poll_add(self._others_token, self._others.fileno(), select.POLLIN)

    def close(self) -> None:
        """Close the ring as :meth:`Ring.close` does, and the ordinary selector."""
        self.ring.close()
        super().close()


class UringLoop(asyncio.SelectorEventLoop):
    """asyncio's loop on a :class:`UringSelector`; :func:`uring_loop` makes it.

    ``probe`` has the kernel's features. ``ring`` is for the transport and is closed with the loop.
    """

    def __init__(self, ring: Ring, ring_probe: Probe) -> None:
        self.ring = ring
        self.probe = ring_probe
        self.turns = UringSelector(self.ring)
        super().__init__(self.turns)
        self.ring.on_error = self._report

    def call_after_poll(self, callback: Callable[[], None], /) -> None:
        """See ``blumfeld.spi.transport.TurnEndingLoop``."""
        if not self.turns.after_poll(callback):
            self.call_soon(callback)

    @property
    def busy_poll_us(self) -> int:
        """As :class:`UringSelector`'s."""
        return self.turns.busy_poll_us

    @busy_poll_us.setter
    def busy_poll_us(self, window_us: int) -> None:
        self.turns.busy_poll_us = window_us

    def _report(self, error: Exception) -> None:
        self.call_exception_handler({"message": "a completion callback raised", "exception": error})


class PlainLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop, used if there is no ring; ``probe.why_not`` has the reason."""

    def __init__(self, ring_probe: Probe) -> None:
        self.probe = ring_probe
        super().__init__()


def uring_loop(without: Iterable[str] = ()) -> UringLoop:
    """Make a loop on the ring. ``without``: features to leave unused, see
    :func:`blumfeld_net_uring.io_uring.probe.probe`.

    :raises RingUnavailable: there is no ring
    """
    names = names_of(without)
    features = probe(names)
    if features.why_not is not None:
        raise RingUnavailable(features.why_not)
    return UringLoop(Ring(setup_without=names), features)


def new_loop(without: Iterable[str] = ()) -> UringLoop | PlainLoop:
    """Make a loop on the ring if possible, otherwise asyncio's own."""
    try:
        return uring_loop(without)
    except RingUnavailable as refusal:
        return PlainLoop(attrs.evolve(probe(without), features=(), why_not=refusal.reason))
