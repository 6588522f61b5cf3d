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
from functools import partial
from time import monotonic_ns

from blumfeld.client.security.command_config import PLAINTEXT, ClientSecurity
from blumfeld_bench.drivers.connections import connect, may_go_first
from blumfeld_bench.drivers.contract import DriverError
from blumfeld_bench.drivers.line import Line
from blumfeld_bench.drivers.loop import Loop
from blumfeld_bench.rebalance.members.member import FAR_NS, Member

EVENTS_MAX = 256
LOOK_NS = 10_000_000
"""Interval between checks of an awaited condition. The time at which it came true is known to the microsecond all the
same.
"""


class Crowd:
    """Members and their connections to one server."""

    def __init__(self, host: str, port: int, security: ClientSecurity = PLAINTEXT) -> None:
        self._address = (host, port)
        self._security = security
        self._loop = Loop()
        self._seats: dict[int, _Seat] = {}
        self._parting: set[_Seat] = set()
        self._wakes: list[tuple[int, int]] = []
        self._slow: list[_Seat] = []

    def __len__(self) -> int:
        return len(self._seats)

    @property
    def members(self) -> list[Member]:
        """Living members, in the order in which they joined."""
        return [seat.member for seat in self._seats.values()]

    def connect(self, count: int) -> list[socket.socket]:
        """Return connections for future members.

        :raises DriverError: the server refuses
        """
        return connect([self._address] * count, self._security)

    def join(self, member: Member, sock: socket.socket) -> None:
        """Let a member join now."""
        seat = self._seats[member.index] = _Seat(member, sock, self._loop, self._heard, self._hung_up)
        seat.line.send(member.begin(monotonic_ns()))

    def kill(self, member: Member) -> None:
        """Close a member's connection without telling the group."""
        now_ns = monotonic_ns()
        self._seats.pop(member.index).line.close()
        member.stop_owning(now_ns)

    def leave(self, member: Member) -> None:
        """Let a member give up its partitions and leave; its connection closes with the answer."""
        now_ns = monotonic_ns()
        seat = self._seats.pop(member.index)
        member.stop_owning(now_ns)
        self._parting.add(seat)
        seat.line.send(member.leave())

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
            handled = self._loop.serve(now_ns if self._slow else min(wake_ns, look_ns, until_ns), EVENTS_MAX)
            now_ns = monotonic_ns()
            if self._slow and not handled:
                self._go_on(now_ns)
        return False

    @property
    def idle_ns(self) -> int:
        """Return the time without work since the crowd was made."""
        return self._loop.idle_ns

    def close(self) -> None:
        """Close all connections without a farewell."""
        for seat in [*self._seats.values(), *self._parting]:
            seat.line.close()
        self._seats.clear()
        self._parting.clear()
        self._loop.close()

    def _wake(self, now_ns: int) -> int:
        """Send due requests; return the next due time."""
        wakes = self._wakes
        while wakes and wakes[0][0] <= now_ns:
            at_ns, index = heapq.heappop(wakes)
            seat = self._seats.get(index)
            if seat is not None and seat.member.wake_ns == at_ns:
                seat.line.send(seat.member.due(now_ns))
        return wakes[0][0] if wakes else FAR_NS

    def _go_on(self, now_ns: int) -> None:
        """Let members with much work go on (:attr:`Member.slow`), now that there is nothing else to do."""
        slow, self._slow = self._slow, []
        for seat in slow:
            if self._seats.get(seat.member.index) is seat:
                seat.line.send(seat.member.due(now_ns))

    def _heard(self, seat: _Seat, frame: bytes) -> None:
        if seat in self._parting:
            self._gone(seat)
            return
        member = seat.member
        reply = member.answered(frame, monotonic_ns())
        if reply is not None:
            seat.line.send(reply)
        elif member.slow:
            self._slow.append(seat)
        elif member.wake_ns < FAR_NS:
            heapq.heappush(self._wakes, (member.wake_ns, member.index))

    def _hung_up(self, seat: _Seat, error: Exception) -> None:
        if seat not in self._parting:
            raise DriverError(f"the server hung up on a member: {error}") from error
        self._gone(seat)

    def _gone(self, seat: _Seat) -> None:
        self._parting.discard(seat)
        seat.line.close()


class _Seat:
    """One member with its connection."""

    def __init__(
        self,
        member: Member,
        sock: socket.socket,
        loop: Loop,
        heard: Callable[[_Seat, bytes], None],
        hung_up: Callable[[_Seat, Exception], None],
    ) -> None:
        self.member = member
        self.line = Line(loop, sock, partial(heard, self), partial(hung_up, self))


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
