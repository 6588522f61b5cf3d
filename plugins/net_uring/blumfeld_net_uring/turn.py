"""What the connections of one transport share on a ring: the group that the kernel receives into, who waits for it."""

from __future__ import annotations

from typing import Protocol

from blumfeld.net.receive import ReceivePool
from blumfeld.net.socket_sending import SocketCalls
from blumfeld.net.turn import Report, Turn
from blumfeld.spi.runtime import Runtime
from blumfeld_net_uring.buffers import BufferGroup
from blumfeld_net_uring.ring import Ring
from blumfeld_net_uring.sending import Flights

SILENT_SENDS_MAX = 4
"""Sends of a turn. A few answers are best forgotten: the next call then waits for requests at once, and each request
costs a call less. Of many the completions are worth their price: while they are looked at further requests come, and
share the next turn with those that woke it.
"""


class Starved(Protocol):
    """What could not receive because every buffer held a frame of this turn."""

    def fed(self) -> None:
        """There are buffers again."""
        ...


class Landed(Protocol):
    """What wants to know that its silent send is over."""

    def landed(self) -> None:
        """It is: all has been sent, or a completion has told what was not."""
        ...


class UringTurn(Turn):
    """The turn on a ring. Buffers of the group are given back at its end, when no frame in them is needed any more."""

    __slots__ = (
        "_grown",
        "_mark",
        "_starved",
        "_waiting",
        "calls",
        "flights",
        "group",
        "multishot",
        "read_bytes",
        "ring",
        "taken",
        "views",
    )

    def __init__(
        self,
        runtime: Runtime,
        report: Report,
        ring: Ring,
        group: BufferGroup | None,
        multishot: bool,
        silent: bool,
        read_bytes: int,
        calls: SocketCalls,
    ) -> None:
        super().__init__(runtime, report, ReceivePool(read_bytes))
        self.ring = ring
        self.group = group
        self.views: list[memoryview] = [] if group is None else group.views
        self.taken: list[int] = [] if group is None else group.taken
        """The group's own lists, at hand."""
        self.multishot = multishot
        self.read_bytes = read_bytes
        self.calls = calls
        self._grown = False
        self._starved: list[Starved] = []
        self.flights = Flights() if silent else None
        """Silent sends. None: this kernel can't."""
        self._mark = 0
        """Of the ring's entries: all of the flights are before it."""
        self._waiting: list[Landed] = []

    def starve(self, stream: Starved) -> bool:
        """A receive found no buffer: whether to try again at once. If not, ``fed`` is called after this turn.

        The group grows at most once a turn: each doubling is for all that starve in it.
        """
        if not self.begun:
            self.begin()
        assert self.group is not None
        if self._grown or self.group.grow():
            self._grown = True
            return True
        self._starved.append(stream)
        return False

    def tell_when_landed(self, stream: Landed) -> None:
        """Call ``landed`` at the end of a turn, once the silent sends of this one are over."""
        self._waiting.append(stream)
        if not self.begun:
            self.begin()

    def land(self) -> None:
        """Let go of what silent sends read from, if they have been submitted and reaped: they are over."""
        if self.ring.reaped < self._mark:
            if not self.begun:
                self.begin()
            return
        if self.flights is not None and self.flights.queues:
            self.ring.completed_silently(self.flights.land())
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for stream in waiting:
                stream.landed()

    def _end(self) -> None:
        group = self.group
        if group is not None:
            group.end_turn()
        self._grown = False
        flights = self.flights
        if flights is None:
            super()._end()
        else:
            if flights.queues or self._waiting:
                self.land()
            flights.open = len(self.dirty) <= SILENT_SENDS_MAX
            super()._end()
            flights.open = False
            if flights.queues:
                self._mark = self.ring.queued_so_far
        if self._starved:
            starved, self._starved = self._starved, []
            for stream in starved:
                stream.fed()
