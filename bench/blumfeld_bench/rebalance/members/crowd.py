"""The sockets of all virtual members in one loop: it sends members' requests, hands them their answers, and wakes due
members.

One thread drives a thousand members at a few per cent of a core. Its busy time is counted, so that a result that the
driver limits can be recognised.
"""

from __future__ import annotations

import gc
import heapq
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic_ns

from blumfeld_bench.drivers.connecting import connect, may_go_first
from blumfeld_bench.drivers.contract import DriverError
from blumfeld_bench.drivers.wire.loop import EPOLLOUT, Loop
from blumfeld_bench.rebalance.members.member import FAR_NS, Member

RECEIVE_BYTES = 256 * 1024
EVENTS_MAX = 256
LOOK_NS = 10_000_000
"""Interval between checks of an awaited condition. The time at which it came true is known to the microsecond all the
same.
"""


class Crowd:
    """Members and their connections to one server."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._loop = Loop()
        self._lines: dict[int, _Line] = {}
        self._parting: set[_Line] = set()
        self._wakes: list[tuple[int, int]] = []
        self._slow: list[_Line] = []
        self.handled = 0
        """Number of reads handled, answers and others."""

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def members(self) -> list[Member]:
        """Living members, in the order in which they joined."""
        return [line.member for line in self._lines.values()]

    def connect(self, count: int) -> list[socket.socket]:
        """Return connections for future members.

        :raises DriverError: the server refuses
        """
        return connect([self._address] * count)

    def join(self, member: Member, sock: socket.socket) -> None:
        """Let a member join now."""
        line = _Line(member, sock, self)
        self._lines[member.index] = line
        self._loop.add(sock, line.handle)
        line.send(member.begin(monotonic_ns()))

    def kill(self, member: Member) -> None:
        """Close a member's connection without telling the group."""
        now_ns = monotonic_ns()
        self._hang_up(self._lines.pop(member.index))
        member.stop_owning(now_ns)

    def leave(self, member: Member) -> None:
        """Let a member give up its partitions and leave; its connection closes with the answer."""
        now_ns = monotonic_ns()
        line = self._lines.pop(member.index)
        member.stop_owning(now_ns)
        line.parting = True
        self._parting.add(line)
        line.send(member.leave())

    def gone(self, line: _Line) -> None:
        """Remove a member whose departure was answered."""
        self._parting.discard(line)
        self._hang_up(line)

    def run(self, until_ns: int, done: Callable[[int], bool] = lambda now_ns: False) -> bool:
        """Drive all members until ``until_ns``, or until ``done(now)`` is true, which is checked every 10 ms. Return
        whether it was.

        :raises DriverError: the server closed a member's connection, or refused one
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
        """Return the time without work since the crowd was made."""
        return self._loop.idle_ns

    def close(self) -> None:
        """Close all connections without a farewell."""
        for line in [*self._lines.values(), *self._parting]:
            self._hang_up(line)
        self._lines.clear()
        self._parting.clear()
        self._loop.close()

    def _wake(self, now_ns: int) -> int:
        """Send due requests; return the next due time."""
        wakes = self._wakes
        while wakes and wakes[0][0] <= now_ns:
            at_ns, index = heapq.heappop(wakes)
            line = self._lines.get(index)
            if line is not None and line.member.wake_ns == at_ns:
                line.send(line.member.due(now_ns))
        return wakes[0][0] if wakes else FAR_NS

    def _go_on(self, now_ns: int) -> None:
        """Let members with much work go on, now that there is nothing else to do."""
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
        """Wait until more can be sent, or stop waiting for that."""
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
    """Turn garbage collection off while the block runs.

    :param first: also run before the server's threads (SCHED_RR), where that is allowed. Processes started in the
        block do not inherit it
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
