"""The small parts of a driver: its schedule, its waiting, its histograms, its shares."""

from __future__ import annotations

import random
from time import monotonic_ns

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram

from blumfeld_bench.drivers.connections import sleep_precisely
from blumfeld_bench.drivers.gather import FIGURES, HIGHEST_NS, LOWEST_NS, encode_latencies
from blumfeld_bench.drivers.loop import Loop
from blumfeld_bench.drivers.schedule import Schedule
from blumfeld_bench.drivers.spec import share
from blumfeld_bench.workload import load_workload, shipped


def taken(schedule: Schedule) -> list[tuple[int, int]]:
    times = []
    while not schedule.over:
        times.append((schedule.intended_ns, schedule.due_ns))
        schedule.advance()
    return times


def test_a_schedule_holds_its_rate_in_every_stretch() -> None:
    """One request in each slot, somewhere in it, in order; the same by the same seed."""
    second = 1_000_000_000
    times = taken(Schedule(3, 1000, 1, 5 * second, 7 * second))
    assert len(times) == 2000
    for number, (intended, due) in enumerate(times):
        assert intended == due
        assert 0 <= intended - 5 * second - number * 1_000_000 < 1_000_000
    assert times == taken(Schedule(3, 1000, 1, 5 * second, 7 * second))
    assert times != taken(Schedule(4, 1000, 1, 5 * second, 7 * second))


def test_a_batch_is_due_with_its_last_record() -> None:
    """A batch of 10 at 1,000 records a second: 9 ms after its first."""
    schedule = Schedule(3, 100, 10, 0, 1_000_000_000)
    assert schedule.due_ns - schedule.intended_ns == 9_000_000


def test_bulk_histograms_are_those_of_the_library() -> None:
    """Bucket for bucket; negative ones, of the warm-up, are left out."""
    draw = random.Random(1)
    values = [int(draw.lognormvariate(11, 3)) for _ in range(5000)] + [0, 1, 2047, 2048, 2049, 4096]
    plain = HdrHistogram(LOWEST_NS, HIGHEST_NS, FIGURES)
    for value in values:
        plain.record_value(max(value, LOWEST_NS))
    halves = [np.array(values[:100], np.int64), np.array([*values[100:], -5, -7_000_000], np.int64)]
    encoded = encode_latencies(halves)
    assert encoded is not None
    merged = HdrHistogram.decode(encoded)
    assert merged.get_total_count() == len(values)
    assert list(merged.counts) == list(plain.counts)
    assert encode_latencies([np.array([-1], np.int64)]) is None


def test_the_loop_wakes_when_it_should() -> None:
    """Never before, and at its best within a third of a millisecond after, for short waits and long ones.

    A busy machine wakes it late, but not for ever.
    """
    sleep_precisely()
    loop = Loop()
    try:
        for wait_ns in (30_000, 400_000, 5_000_000):
            late: list[int] = []
            while len(late) < 10 or (min(late) >= 300_000 and len(late) < 2_000):
                until = monotonic_ns() + wait_ns
                loop.serve(until, 16)
                late.append(monotonic_ns() - until)
            assert min(late) >= 0
            assert min(late) < 300_000
        assert loop.idle_ns > 10 * 5_000_000
    finally:
        loop.close()


@pytest.mark.parametrize(("total", "processes"), [(1, 3), (7, 2), (16, 4), (0, 2)])
def test_shares_cover_everything_once(total: int, processes: int) -> None:
    shares = [share(total, index, processes) for index in range(processes)]
    assert [each for part in shares for each in part] == list(range(total))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("name", shipped())
def test_shipped_workloads_are_short_and_small(name: str) -> None:
    """A round within a minute, up to 2 GB by what is preloaded and written at fixed rates."""
    workload = load_workload(name)
    assert workload.name == name
    written = float(workload.preload_bytes)
    seconds = 0.0
    for step in workload.steps:
        if step.produce is None:
            continue  # over when all is read
        seconds += step.warm_up_s + step.measure_s + 1.0
        produce = step.produce
        written += produce.rate_per_s * produce.record_bytes_max * (step.warm_up_s + step.measure_s)
    assert seconds <= 60
    assert written <= 2_000_000_000
