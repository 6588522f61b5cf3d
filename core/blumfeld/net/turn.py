"""The transport's part in the end of a turn: every connection with ready answers sends once, in Phase.ANSWER."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from blumfeld.net.memory import Memory
from blumfeld.net.receive import ReceivePool
from blumfeld.spi.runtime import Phase, Runtime

_ANSWER = Phase.ANSWER
"""Looked up once, because each look-up of an enumeration's member costs a call on Python 3.11."""

Report = Callable[[dict[str, Any]], None]
"""Takes the same dictionary as a loop's ``call_exception_handler``: ``message`` and ``exception``."""


class Flushable(Protocol):
    """A connection that sends at the end of the turn."""

    def flush(self) -> None:
        """Send the answers that are ready."""
        ...


class Turn:
    """State that the connections of one transport share: the turn's time, its memory, and the connections that send.

    :meth:`begin` is called once a turn, by the first connection that receives or has an answer. All connections send
    together at the end, so many answers of one connection share one system call, and no ack precedes its write.
    """

    __slots__ = ("_report", "begun", "dirty", "memory", "now_ms", "pool", "runtime")

    def __init__(self, runtime: Runtime, report: Report, pool: ReceivePool) -> None:
        self.runtime = runtime
        self._report = report
        self.pool = pool
        self.memory = pool.memory = Memory(runtime)
        """The bound on the memory of all connections together."""
        self.begun = False
        self.now_ms = runtime.monotonic_ms()
        """Start of this turn. One clock reading serves all connections, and is precise enough for idle time-outs."""
        self.dirty: list[Flushable] = []
        """Connections that send at the end of this turn. A connection that adds itself must call :meth:`begin`, unless
        the turn has ``begun``."""

    def begin(self) -> None:
        """Begin the turn: read the clock, and have :meth:`_end` called at its end."""
        self.begun = True
        self.now_ms = self.runtime.monotonic_ms()
        self.runtime.at_end_of_turn(_ANSWER, self._end)

    def flush_at_end(self, connection: Flushable) -> None:
        """Let the connection send at the end of this turn. The caller must call this only once a turn."""
        self.dirty.append(connection)
        if not self.begun:
            self.begin()

    def defect(self, error: Exception, what: str) -> None:
        """Report an exception from a callback that must not raise, in the way in which the loop reports its own."""
        self._report({"message": f"{what} raised", "exception": error})

    def _end(self) -> None:
        dirty, self.dirty = self.dirty, []
        self.begun = False
        # Batches were written in an earlier phase of this turn, so the frames in the pool may be overwritten now.
        self.pool.end_turn()
        for connection in dirty:
            connection.flush()
