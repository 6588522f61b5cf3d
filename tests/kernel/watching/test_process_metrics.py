"""What the process uses, and how late its loop is."""

from __future__ import annotations

import os
from itertools import count
from typing import Any, cast

import pytest

from blumfeld import __version__
from blumfeld.kernel.watching.process_metrics import LAG_EVERY_MS, LoopLag, process_metrics
from blumfeld.spi.completion import Steps
from blumfeld.spi.scheduler import Lane, Scheduler
from blumfeld_kit.fakes.runtime import FakeRuntime


class LateRuntime(FakeRuntime):
    """A loop that calls back late."""

    late_ms = 0.0

    def call_later(self, delay_ms: float, callback: Any) -> Any:
        return super().call_later(delay_ms + self.late_ms, callback)


def test_the_loop_s_lag_is_how_late_it_calls_back() -> None:
    runtime = LateRuntime()
    lag = LoopLag(runtime)
    lag.start()
    runtime.advance(LAG_EVERY_MS + 1)
    runtime.late_ms = 30
    runtime.advance(2 * LAG_EVERY_MS + 31)
    runtime.run(lag.stop())
    runtime.advance(10 * LAG_EVERY_MS)
    runtime.run(lag.stop())
    histogram = lag.histogram
    counted = dict(zip((*histogram.bounds_s, None), histogram.counts, strict=True))
    assert {bound: count for bound, count in counted.items() if count} == {0.001: 2, 0.05: 1}
    assert histogram.total_s == pytest.approx(0.030)


def test_the_process_is_measured() -> None:
    runtime = cast("Any", FakeRuntime())
    metrics = {metric.name: metric for metric in process_metrics(LoopLag(runtime), runtime.scheduler)}
    before = metrics["blumfeld_process_open_fds"].read()
    with open(os.devnull, "rb"):
        assert metrics["blumfeld_process_open_fds"].read() == before + 1
    assert metrics["blumfeld_process_max_fds"].read() >= before
    assert metrics["blumfeld_process_cpu_seconds_total"].read() > 0
    assert 10e6 < metrics["blumfeld_process_resident_memory_bytes"].read() < 10e9
    (build,) = metrics["blumfeld_build_info"].read()
    assert build[0] == __version__


def test_long_work_is_measured_by_lane() -> None:
    runtime = FakeRuntime()
    runtime.scheduler = Scheduler(count(0.0, 5.0).__next__, lambda callback: runtime.call_later(0, callback))
    metrics = {metric.name: metric for metric in process_metrics(LoopLag(runtime), runtime.scheduler)}

    def long() -> Steps[None]:
        yield None
        yield None

    runtime.scheduler.run(Lane.UPKEEP, long())
    assert metrics["blumfeld_scheduler_waiting_pieces"].read()["upkeep",] == 1
    assert metrics["blumfeld_scheduler_turn_max_seconds"].read()["upkeep",] >= 0.005
    assert metrics["blumfeld_scheduler_turn_max_seconds"].read()["requests",] == 0
    runtime.run_turn()
    assert metrics["blumfeld_scheduler_waiting_pieces"].read()["upkeep",] == 0
