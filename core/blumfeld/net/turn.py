"""The transport's part in the end of a turn: every connection with ready answers sends once, in Phase.ANSWER."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from blumfeld.net.memory import Memory
from blumfeld.net.receive import ReceivePool
from blumfeld.spi.runtime import Phase, Runtime

_ANSWER = Phase.ANSWER
"""Looked up once: members of an enumeration cost a call on Python 3.11."""

Report = Callable[[dict[str, Any]], None]
"""Takes what a loop's ``call_exception_handler`` takes: ``message`` and ``exception``."""


class Flushable(Protocol):
    """What has something to send at the end of the turn."""

    def flush(self) -> None:
        """Send what is ready."""
        ...


class Turn:
    """What the connections of one transport share: the turn's time, its memory, and who has something to send.

    ``begin`` is called once a turn, by the first connection that receives or has an answer.
    """

    __slots__ = ("_report", "begun", "dirty", "memory", "now_ms", "pool", "runtime")

    def __init__(self, runtime: Runtime, report: Report, pool: ReceivePool) -> None:
        self.runtime = runtime
        self._report = report
        self.pool = pool
        self.memory = pool.memory = Memory(runtime)
        """The bound on what all connections hold."""
        self.begun = False
        self.now_ms = runtime.monotonic_ms()
        """When this turn began: precise enough for idle time-outs, and one look at the clock for all."""
        self.dirty: list[Flushable] = []
        """Who sends at the end of this turn. Who joins them calls :meth:`begin`, unless it has ``begun``."""

    def begin(self) -> None:
        """Something happens in this turn: be called at its end."""
        self.begun = True
        self.now_ms = self.runtime.monotonic_ms()
        self.runtime.at_end_of_turn(_ANSWER, self._end)

    def flush_at_end(self, connection: Flushable) -> None:
        """Let the connection send at the end of this turn. The caller sees to it that it is called once a turn."""
        self.dirty.append(connection)
        if not self.begun:
            self.begin()

    def defect(self, error: Exception, what: str) -> None:
        """Something escaped from a callback that must not raise: report it as the loop does for its own."""
        self._report({"message": f"{what} raised", "exception": error})

    def _end(self) -> None:
        dirty, self.dirty = self.dirty, []
        self.begun = False
        self.pool.end_turn()
        for connection in dirty:
            connection.flush()
