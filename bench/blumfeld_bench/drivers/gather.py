"""Merge the laps and latencies of several driver processes into one Outcome."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hdrh.histogram import HdrHistogram
from numpy.typing import NDArray

from blumfeld_bench.drivers.contract import Outcome, Progress
from blumfeld_bench.drivers.spec import Begin, Counts, Done, Lap, unpack
from blumfeld_bench.result import DriverUsage, Point
from blumfeld_bench.workload import Step

Latencies = NDArray[np.int64]
NONE: Latencies = np.empty(0, np.int64)


class Gathered:
    """The reports of a step's processes so far."""

    def __init__(self, step: Step, begin: Begin, processes: int) -> None:
        self._step, self._begin = step, begin
        self._laps: list[list[Lap]] = [[] for _ in range(processes)]
        self._done: dict[int, Done] = {}
        self._shown = 0

    @property
    def complete(self) -> bool:
        """Whether all processes are done."""
        return len(self._done) == len(self._laps)

    @property
    def measured(self) -> bool:
        """Whether all processes have sent their last lap: the measured part is over, perhaps early."""
        return self.complete

    def lap(self, index: int, lap: Lap) -> None:
        """Add a process's next lap."""
        self._laps[index].append(lap)

    def done(self, index: int, done: Done) -> None:
        """Add a process's final report."""
        self._done[index] = done

    def progress(self) -> Progress | None:
        """Return progress for the live view once all processes have sent the same lap; None until then."""
        if min(len(laps) for laps in self._laps) <= self._shown:
            return None
        laps = [laps[self._shown] for laps in self._laps]
        self._shown += 1
        sample = np.abs(np.array([value for lap in laps for value in lap.sample], np.int64))
        to_ns = max(lap.to_ns for lap in laps)
        return Progress(
            elapsed_s=(to_ns - self._begin.begin_ns) / 1e9,
            measuring=all(lap.from_ns >= self._begin.measure_ns for lap in laps),
            point=self._point(laps, sample),
        )

    def outcome(self) -> Outcome:
        """Return the sum of all processes' reports."""
        begin, done = self._begin, [self._done[index] for index in sorted(self._done)]
        acks = [_unpacked(each.acks) for each in done]
        ends = [_unpacked(each.ends) for each in done]
        measured = [lap for laps in self._laps for lap in laps if lap.from_ns >= begin.measure_ns]
        from_ns = min((lap.from_ns for lap in measured), default=begin.measure_ns)
        end_ns = max((lap.to_ns for lap in measured), default=begin.end_ns)
        counts = [lap.counts for lap in measured]
        produces = self._step.produce is not None
        records = sum(each.records if produces else each.received_records for each in counts)
        received = sum(each.received_bytes for each in counts)
        return Outcome(
            seconds=(end_ns - from_ns) / 1e9,
            records=records,
            bytes=sum(each.bytes for each in counts) if produces else received,
            received_bytes=received,
            requests=sum(each.requests + each.fetches for each in counts),
            errors=sum(each.errors for each in done),
            error=next((each.error for each in done if each.error is not None), None),
            produce_ack=encode_latencies(acks),
            end_to_end=encode_latencies(ends),
            series=self._series(acks, ends),
            usage=self._usage([_unpacked(each.late) for each in done]),
        )

    def _usage(self, late: Sequence[Latencies]) -> DriverUsage:
        busiest = 0.0
        counts: list[Counts] = []
        for laps in self._laps:
            mine = [lap for lap in laps if lap.from_ns >= self._begin.measure_ns]
            time_ns = sum(lap.to_ns - lap.from_ns for lap in mine)
            if time_ns:
                busiest = max(busiest, sum(lap.counts.busy_ns for lap in mine) / time_ns)
            counts += [lap.counts for lap in mine]
        all_late = np.concatenate([NONE, *late])
        return DriverUsage(
            user_s=sum(each.user_s for each in counts),
            system_s=sum(each.system_s for each in counts),
            busy=min(1.0, busiest),
            late_us_p99=float(np.percentile(all_late, 99)) / 1e3 if len(all_late) else 0.0,
        )

    def _series(self, acks: Sequence[Latencies], ends: Sequence[Latencies]) -> tuple[Point, ...]:
        points = []
        produces = self._step.produce is not None
        for number in range(max(len(laps) for laps in self._laps)):
            seen = [NONE]
            laps = []
            for process, own in enumerate(self._laps):
                if number >= len(own):
                    continue
                laps.append(own[number])
                before = own[number - 1].counts if number else Counts()
                now = own[number].counts
                if produces:
                    seen.append(acks[process][before.acks : now.acks])
                else:
                    seen.append(ends[process][before.ends : now.ends])
            points.append(self._point(laps, np.abs(np.concatenate(seen))))
        return tuple(points)

    def _point(self, laps: Sequence[Lap], latencies: Latencies) -> Point:
        from_ns = min(lap.from_ns for lap in laps)
        to_ns = max(lap.to_ns for lap in laps)
        seconds = max(1e-9, (to_ns - from_ns) / 1e9)
        produces = self._step.produce is not None
        counts = [lap.counts for lap in laps]
        records = sum(each.records if produces else each.received_records for each in counts)
        size = sum(each.bytes if produces else each.received_bytes for each in counts)
        p50, p99, most = (0.0, 0.0, 0.0)
        if len(latencies):
            p50, p99, most = (float(value) / 1e3 for value in np.percentile(latencies, (50, 99, 100)))
        return Point(
            at_s=(to_ns - self._begin.measure_ns) / 1e9,
            records_per_s=records / seconds,
            bytes_per_s=size / seconds,
            p50_us=p50,
            p99_us=p99,
            max_us=most,
        )


def _unpacked(text: str) -> Latencies:
    return np.frombuffer(unpack(text), np.int64)


LOWEST_NS = 1
HIGHEST_NS = 3_600_000_000_000
FIGURES = 3


def encode_latencies(arrays: Sequence[NDArray[np.int64]]) -> str | None:
    """Return a histogram of all non-negative values, in HdrHistogram's compressed V2 form, base64; None without such
    values.
    """
    values = np.concatenate([np.empty(0, np.int64), *arrays])
    values = values[values >= 0]
    if not len(values):
        return None
    histogram = HdrHistogram(LOWEST_NS, HIGHEST_NS, FIGURES)
    distinct, counts = np.unique(_rounded(values, histogram), return_counts=True)
    for value, count in zip(distinct.tolist(), counts.tolist(), strict=True):
        histogram.record_value(value, count)
    encoded: bytes = histogram.encode()
    return encoded.decode()


def _rounded(values: NDArray[np.int64], histogram: HdrHistogram) -> NDArray[np.int64]:
    """Round each value down to the least value of its bucket, so that few distinct values are left to record."""
    values = np.clip(values, LOWEST_NS, HIGHEST_NS)
    bits = np.frexp(values.astype(np.float64))[1]
    shift = np.maximum(bits - int(histogram.sub_bucket_count).bit_length() + 1, 0)
    rounded: NDArray[np.int64] = (values >> shift) << shift
    return rounded
