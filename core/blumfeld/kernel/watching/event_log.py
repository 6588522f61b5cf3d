"""The event log, rendered by structlog.

An edge module: it stamps events with the wall clock, and writes to stderr. structlog imports rich: together 60 ms and
8 MB. So it is imported with the first event after the ports are open, and a quiet broker never pays for it. Until then
events wait in a bounded queue.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TextIO

EVENTS_KEPT_MAX = 1_000
"""Events that are kept until logging is set up. Further ones push out the oldest, and a warning gives their number."""

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}

Render = Callable[[int, str, str, str, dict[str, Any]], None]
"""Writes one event: (time in ms, level, logger, event, values)."""
Prepare = Callable[[], Render]
"""Imports the renderer's modules and returns it. It is slow, and may run in a worker thread."""
Offload = Callable[[Prepare, Callable[[Render], None]], None]
"""Runs a ``Prepare`` in a worker thread, and calls back on the loop with its ``Render``."""


class EventLogs:
    """All event logs of a node, with one threshold and one renderer."""

    def __init__(
        self, prepare: Prepare, level: str = "info", now_ms: Callable[[], int] | None = None
    ) -> None:
        self.threshold = LEVELS[level]
        self._now_ms = now_ms if now_ms is not None else _wall_clock_ms
        """The clock of the time stamps. A simulation hands in its own."""
        self._prepare = prepare
        self._render: Render | None = None
        self._offload: Offload | None = None
        self._preparing = False
        self._kept: deque[tuple[int, str, str, str, dict[str, Any]]] = deque()
        self._dropped = 0

    def named(self, name: str) -> NamedLog:
        """Returns the log with this name."""
        return NamedLog(self, name)

    def emit(self, level: str, logger: str, event: str, values: dict[str, Any]) -> None:
        """Render one event, or keep it until the renderer is ready."""
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
        """Allow the import of the renderer from now on. ``offload`` does it off the loop, with the first event."""
        self._offload = offload
        if self._kept:
            self._prepare_soon()

    def flush(self) -> None:
        """Render all kept events now. Call it before the process ends."""
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
        """Log a detail for debugging."""
        self._logs.emit("debug", self._name, event, values)

    def info(self, event: str, **values: Any) -> None:
        """Log a rare event that is as it should be."""
        self._logs.emit("info", self._name, event, values)

    def warning(self, event: str, **values: Any) -> None:
        """Log a problem that the broker can live with."""
        self._logs.emit("warning", self._name, event, values)

    def error(self, event: str, **values: Any) -> None:
        """Log a failure that a person must look at."""
        self._logs.emit("error", self._name, event, values)


def structlog_renderer(log_format: str, out: TextIO | None = None) -> Prepare:
    """Returns a ``Prepare`` for structlog: ``console`` (colours only on a terminal) or ``json`` (one object a line)."""

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
    """Renders with a structlog logger. It ignores write errors: a closed stderr must not stop the broker."""

    def __init__(self, logger: Any) -> None:
        self._log = {level: getattr(logger, level) for level in LEVELS}

    def __call__(self, time_ms: int, level: str, logger: str, event: str, values: dict[str, Any]) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time_ms // 1000))
        try:
            self._log[level](event, timestamp=f"{stamp}.{time_ms % 1000:03d}Z", logger=logger, **values)
        except OSError:
            return
