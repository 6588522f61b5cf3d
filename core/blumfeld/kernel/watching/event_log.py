"""Events for people and machines, by structlog, which is imported when there is something to say and a port is open.

An edge module: it stamps events with the wall clock, and writes to stderr. structlog brings rich along: 60 ms and
8 MB that a quiet broker never pays. Until then events are kept, in a bounded queue.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TextIO

EVENTS_KEPT_MAX = 1_000
"""Events kept while logging is not set up; the oldest go first, and their number is told."""

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}

Render = Callable[[int, str, str, str, dict[str, Any]], None]
"""(time in ms, level, logger, event, values) → written."""
Prepare = Callable[[], Render]
"""Imports what a render needs: slow, touches nothing of the loop."""
Offload = Callable[[Prepare, Callable[[Render], None]], None]
"""Runs a ``Prepare`` elsewhere and calls back on the loop with what it gave."""


class EventLogs:
    """All logs of a node: a threshold, and where events go."""

    def __init__(
        self, prepare: Prepare, level: str = "info", now_ms: Callable[[], int] | None = None
    ) -> None:
        self.threshold = LEVELS[level]
        self._now_ms = now_ms if now_ms is not None else _wall_clock_ms
        """A simulation stamps with its own clock."""
        self._prepare = prepare
        self._render: Render | None = None
        self._offload: Offload | None = None
        self._preparing = False
        self._kept: deque[tuple[int, str, str, str, dict[str, Any]]] = deque()
        self._dropped = 0

    def named(self, name: str) -> NamedLog:
        """The log that stands under this name."""
        return NamedLog(self, name)

    def emit(self, level: str, logger: str, event: str, values: dict[str, Any]) -> None:
        """Take one event: render it, or keep it until that can be done."""
        if LEVELS[level] < self.threshold:
            return
        entry = (self._now_ms(), level, logger, event, values)
        if self._render is not None:
            self._render(*entry)
            return
        if len(self._kept) == EVENTS_KEPT_MAX:
            self._kept.popleft()
            self._dropped += 1
        self._kept.append(entry)
        self._prepare_soon()

    def port_is_open(self, offload: Offload) -> None:
        """From now on events are rendered soon after they come: ``offload`` prepares for that off the loop."""
        self._offload = offload
        if self._kept:
            self._prepare_soon()

    def flush(self) -> None:
        """Render what is kept, now: before the process ends."""
        if self._kept and self._render is None:
            self._use(self._prepare())

    def _prepare_soon(self) -> None:
        if self._offload is not None and not self._preparing:
            self._preparing = True
            self._offload(self._prepare, self._use)

    def _use(self, render: Render) -> None:
        self._render = render
        if self._dropped:
            values = {"dropped": self._dropped, "kept_max": EVENTS_KEPT_MAX}
            event = "events from before logging was set up were dropped"
            render(self._now_ms(), "warning", "kernel", event, values)
        while self._kept:
            render(*self._kept.popleft())


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class NamedLog:
    """``spi.hooks.EventLog`` under one name."""

    __slots__ = ("_logs", "_name")

    def __init__(self, logs: EventLogs, name: str) -> None:
        self._logs = logs
        self._name = name

    def debug(self, event: str, **values: Any) -> None:
        """Of interest to who debugs this."""
        self._logs.emit("debug", self._name, event, values)

    def info(self, event: str, **values: Any) -> None:
        """Something rare happened as it should."""
        self._logs.emit("info", self._name, event, values)

    def warning(self, event: str, **values: Any) -> None:
        """Something is not as it should be; the broker serves on."""
        self._logs.emit("warning", self._name, event, values)

    def error(self, event: str, **values: Any) -> None:
        """Something failed that someone must look at."""
        self._logs.emit("error", self._name, event, values)


def structlog_renderer(log_format: str, out: TextIO | None = None) -> Prepare:
    """Prepares structlog for ``console`` (colours on a terminal only) or ``json`` (an object a line)."""

    def prepare() -> Render:
        import structlog

        stream = sys.stderr if out is None else out
        processors: list[Any] = [structlog.processors.add_log_level]
        if log_format == "json":
            processors += [
                structlog.processors.dict_tracebacks,
                structlog.processors.JSONRenderer(default=str),
            ]
        else:
            # Plain tracebacks: rich's would import the rest of rich.
            plain = structlog.dev.plain_traceback
            processors += [structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=plain)]
        logger = structlog.wrap_logger(
            structlog.PrintLogger(stream),
            processors=processors,
            wrapper_class=structlog.make_filtering_bound_logger(0),
        )
        return _Renderer(logger)

    return prepare


class _Renderer:
    """Renders by a structlog logger; a reader of stderr that went away is no reason to stop serving."""

    def __init__(self, logger: Any) -> None:
        self._log = {level: getattr(logger, level) for level in LEVELS}

    def __call__(self, time_ms: int, level: str, logger: str, event: str, values: dict[str, Any]) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time_ms // 1000))
        try:
            self._log[level](event, timestamp=f"{stamp}.{time_ms % 1000:03d}Z", logger=logger, **values)
        except OSError:
            return
