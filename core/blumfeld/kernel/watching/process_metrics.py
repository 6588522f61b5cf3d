"""Metrics of the process itself: its use of the machine, the lateness of its loop, and its build.

An edge module: it asks the operating system.
"""

from __future__ import annotations

import os
import resource
import sys
import time

from blumfeld import __version__, spi
from blumfeld.spi.histogram import Histogram
from blumfeld.spi.hooks import Metric
from blumfeld.spi.runtime import Runtime, Timer
from blumfeld.spi.scheduler import Lane, Scheduler

LAG_EVERY_MS = 100
"""Pause between two looks at the loop: ten wake-ups a second of 20 µs each. A stall of that length is always seen."""
LAG_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_PAGE_BYTES = resource.getpagesize()
_STARTED_S = time.time()


class LoopLag:
    """Measures how much later than asked the loop calls back: what a request may wait before anybody looks at it."""

    def __init__(self, runtime: Runtime) -> None:
        self.histogram = Histogram(LAG_BOUNDS_S)
        self._runtime = runtime
        self._due_ms = 0.0
        self._timer: Timer | None = None

    def start(self) -> None:
        """Look at the loop from now on."""
        self._due_ms = self._runtime.monotonic_ms() + LAG_EVERY_MS
        self._timer = self._runtime.call_later(LAG_EVERY_MS, self._look)

    async def stop(self) -> None:
        """Look no more. Legal without start."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        late_ms = max(0.0, self._runtime.monotonic_ms() - self._due_ms)
        self.histogram.add(late_ms / 1000.0)
        self.start()


def process_metrics(lag: LoopLag, scheduler: Scheduler) -> list[Metric]:
    """Returns the metrics of this process. They are read at a scrape, which takes about 30 µs."""
    build = (__version__, spi.VERSION, sys.version.split()[0])
    return [
        Metric(
            "blumfeld_build_info",
            "The build that runs, in its labels; always 1",
            "gauge",
            lambda: {build: 1},
            ("version", "spi", "python"),
        ),
        Metric("blumfeld_process_cpu_seconds_total", "CPU time, user and system", "counter", _cpu_s),
        Metric("blumfeld_process_resident_memory_bytes", "Resident memory", "gauge", _resident_bytes),
        Metric("blumfeld_process_open_fds", "Descriptors that are open", "gauge", _open_fds),
        Metric("blumfeld_process_max_fds", "Descriptors that may be open", "gauge", _max_fds),
        Metric("blumfeld_process_start_time_seconds", "When the process began", "gauge", lambda: _STARTED_S),
        Metric(
            "blumfeld_loop_lag_seconds",
            f"How much later than asked the event loop called back, measured every {LAG_EVERY_MS} ms",
            "histogram",
            lambda: lag.histogram,
        ),
        Metric(
            "blumfeld_scheduler_turn_max_seconds",
            "The longest time that long work of a lane has held the event loop in one turn",
            "gauge",
            lambda: {(lane.value,): scheduler.longest_ms(lane) / 1000.0 for lane in Lane},
            ("lane",),
        ),
        Metric(
            "blumfeld_scheduler_waiting_pieces",
            "Pieces of long work that wait for their next share of the event loop",
            "gauge",
            lambda: {(lane.value,): scheduler.waiting(lane) for lane in Lane},
            ("lane",),
        ),
    ]


def _cpu_s() -> float:
    used = os.times()
    return used.user + used.system


def _resident_bytes() -> float:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:  # no Linux: the most that it ever was
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _open_fds() -> float:
    """Returns the number of open descriptors; -1 where it isn't known."""
    try:
        # Since Linux 6.2 the size of the directory. To list 100,000 entries would hold the loop for 50 ms.
        return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))
    except OSError:
        return -1


def _max_fds() -> float:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft
