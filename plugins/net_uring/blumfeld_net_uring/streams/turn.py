"""State that one transport's connections share on a ring: the kernel's buffer group, and the streams that
wait for it.
"""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.net.readiness.streams import SocketCalls
from blumfeld.net.turn import ReceivePool, Report, Turn
from blumfeld.spi.runtime import Runtime
from blumfeld_net_uring.io_uring.buffers import BufferGroup
from blumfeld_net_uring.io_uring.ring import Ring


class UringTurn(Turn):
    """The turn on a ring. At its end the group's buffers are given back, because no frame in them is needed
    any more.
    """

    __slots__ = ("_grown", "_starved", "calls", "group", "multishot", "read_bytes", "ring", "taken", "views")

    def __init__(
        self,
        runtime: Runtime,
        report: Report,
        ring: Ring,
        group: BufferGroup | None,
        multishot: bool,
        read_bytes: int,
        calls: SocketCalls,
    ) -> None:
        super().__init__(runtime, report, ReceivePool(read_bytes))
        self.ring = ring
        self.group = group
        self.views: list[memoryview] = [] if group is None else group.views
        self.taken: list[int] = [] if group is None else group.taken
        """The group's own list, as an attribute because it is used often."""
        self.multishot = multishot
        self.read_bytes = read_bytes
        self.calls = calls
        self._grown = False
        self._starved: list[Callable[[], None]] = []
        """``fed`` of each stream that could not receive because every buffer held a frame of this turn."""

    def starve(self, fed: Callable[[], None]) -> bool:
        """A receive found no buffer. Returns whether to try again at once; if not, ``fed`` is called after
        this turn, when buffers are free again.

        The group grows at most once a turn: each doubling serves all streams that starve in it.
        """
        if not self.begun:
            self.begin()
        assert self.group is not None
        if self._grown or self.group.grow():
            self._grown = True
            return True
        self._starved.append(fed)
        return False

    def _end(self) -> None:
        group = self.group
        if group is not None:
            group.end_turn()
        self._grown = False
        super()._end()
        if self._starved:
            starved, self._starved = self._starved, []
            for fed in starved:
                fed()
