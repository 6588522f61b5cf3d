"""The sockets of all virtual members, in one loop: what a member wants sent goes out, answers go in, and whoever is
due is woken. One process and one thread drive a thousand members at a few per cent of a core; what it was busy for
is counted, so that a result which is the driver's own can be told.
"""

from __future__ import annotations

import gc
import heapq
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic_ns

from blumfeld.bench.drivers.connecting import connect, may_go_first
from blumfeld.bench.drivers.contract import DriverError
from blumfeld.bench.drivers.wire.loop import EPOLLOUT, Loop
from blumfeld.bench.rebalance.members.member import FAR_NS, Member

RECEIVE_BYTES = 256 * 1024
EVENTS_MAX = 256
LOOK_NS = 10_000_000
"""How often it is asked whether what is waited for has come about; when it did is known to the microsecond."""


class Crowd:
    """Members and their connections, to one server."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._loop = Loop()
        self._lines: dict[int, _Line] = {}
        self._parting: set[_Line] = set()
        self._wakes: list[tuple[int, int]] = []
        self._slow: list[_Line] = []
        self.handled = 0
        """Answers, and whatever else was read."""

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def members(self) -> list[Member]:
        """Those that are alive, in the order in which they came."""
        return [line.member for line in self._lines.values()]

    def connect(self, count: int) -> list[socket.socket]:
        """Connections for members to come.

        :raises DriverError: the server refuses
        """
        return connect([self._address] * count)

    def join(self, member: Member, sock: socket.socket) -> None:
        """A member begins now."""
        line = _Line(member, sock, self)
        self._lines[member.index] = line
        self._loop.add(sock, line.handle)
        line.send(member.begin(monotonic_ns()))

    def kill(self, member: Member) -> None:
        """Its connection is closed; the group is told nothing."""
        now_ns = monotonic_ns()
        self._hang_up(self._lines.pop(member.index))
        member.stop_owning(now_ns)

    def leave(self, member: Member) -> None:
        """It gives up what it owns, says goodbye and goes, when it was answered."""
        now_ns = monotonic_ns()
        line = self._lines.pop(member.index)
        member.stop_owning(now_ns)
        line.parting = True
        self._parting.add(line)
        line.send(member.leave())

    def gone(self, line: _Line) -> None:
        """Who left was answered."""
        self._parting.discard(line)
        self._hang_up(line)

    def run(self, until_ns: int, done: Callable[[int], bool] = lambda now_ns: False) -> bool:
        """Drive all until then, or until ``done(now)``, which is asked every 10 ms: whether it was done.

        :raises DriverError: the server hung up on a member, or refused one
        """
        now_ns = monotonic_ns()
        look_ns = now_ns
        while now_ns < until_ns:
            if now_ns >= look_ns:
                if done(now_ns):
                    return True
                look_ns = now_ns + LOOK_NS
            wake_ns = self._wake(now_ns)
            handled = self.handled
            self._loop.serve(now_ns if self._slow else min(wake_ns, look_ns, until_ns), EVENTS_MAX)
            now_ns = monotonic_ns()
            if self._slow and self.handled == handled:
                self._go_on(now_ns)
        return False

    @property
    def idle_ns(self) -> int:
        """How long it had nothing to do, since it was made."""
        return self._loop.idle_ns

    def close(self) -> None:
        """Hang up everywhere; nobody says goodbye."""
        for line in [*self._lines.values(), *self._parting]:
            self._hang_up(line)
        self._lines.clear()
        self._parting.clear()
        self._loop.close()

    def _wake(self, now_ns: int) -> int:
        """Send what is due; when the next is."""
        wakes = self._wakes
        while wakes and wakes[0][0] <= now_ns:
            at_ns, index = heapq.heappop(wakes)
            line = self._lines.get(index)
            if line is not None and line.member.wake_ns == at_ns:
                line.send(line.member.due(now_ns))
        return wakes[0][0] if wakes else FAR_NS

    def _go_on(self, now_ns: int) -> None:
        """Let those go on that had much to do, now that nothing else is to be done."""
        slow, self._slow = self._slow, []
        for line in slow:
            if not line.parting and line.member.index in self._lines:
                line.send(line.member.due(now_ns))

    def go_on_later(self, line: _Line) -> None:
        """See :attr:`Member.slow`."""
        self._slow.append(line)

    def wake_at(self, at_ns: int, index: int) -> None:
        """Remember when a member is due."""
        heapq.heappush(self._wakes, (at_ns, index))

    def watch(self, sock: socket.socket, wanted: bool) -> None:
        """Wait until more can be sent; or no longer."""
        self._loop.watch_writing(sock, wanted)

    def _hang_up(self, line: _Line) -> None:
        self._loop.remove(line.sock)
        line.sock.close()


class _Line:
    """One member's connection."""

    __slots__ = ("_crowd", "_in", "_out", "member", "parting", "sock")

    def __init__(self, member: Member, sock: socket.socket, crowd: Crowd) -> None:
        self.member = member
        self.sock = sock
        self.parting = False
        self._crowd = crowd
        self._in = bytearray()
        self._out = b""

    def send(self, frame: bytes) -> None:
        try:
            sent = self.sock.send(frame)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise DriverError(f"the server hung up on a member: {error}") from error
        if sent < len(frame):
            self._out = frame[sent:]
            self._crowd.watch(self.sock, True)

    def handle(self, mask: int) -> None:
        self._crowd.handled += 1
        if self.parting:
            self._crowd.gone(self)
            return
        if mask & EPOLLOUT and self._out:
            rest, self._out = self._out, b""
            self.send(rest)
            if not self._out:
                self._crowd.watch(self.sock, False)
        try:
            data = self.sock.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise DriverError(f"the server hung up on a member: {error}") from error
        if not data:
            raise DriverError("the server hung up on a member")
        if self._in:
            self._in += data
            data = bytes(self._in) if len(self._in) >= 4 + _size(self._in) else b""
        if not data:
            return
        size = 4 + _size(data) if len(data) >= 4 else len(data) + 1
        if len(data) < size:
            self._in[:] = data
            return
        self._in.clear()
        self._answered(data[4:size])

    def _answered(self, frame: bytes) -> None:
        member = self.member
        reply = member.answered(frame, monotonic_ns())
        if reply is not None:
            self.send(reply)
        elif member.slow:
            self._crowd.go_on_later(self)
        elif member.wake_ns < FAR_NS:
            self._crowd.wake_at(member.wake_ns, member.index)


def _size(data: bytes | bytearray) -> int:
    return int.from_bytes(data[:4], "big")


@contextmanager
def undisturbed(*, first: bool) -> Iterator[None]:
    """No garbage collection while the block runs.

    :param first: before the server's threads too (SCHED_RR), where that is allowed. What is started in the block
        does not inherit it
    """
    first = first and may_go_first()
    gc.collect()
    gc.freeze()
    gc.disable()
    policy, priority = os.sched_getscheduler(0), os.sched_getparam(0)
    if first:
        lowest = os.sched_param(os.sched_get_priority_min(os.SCHED_RR))
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, lowest)
    try:
        yield
    finally:
        if first:
            os.sched_setscheduler(0, policy, priority)
        gc.enable()
        gc.unfreeze()
