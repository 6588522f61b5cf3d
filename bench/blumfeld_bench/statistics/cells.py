"""A result arranged for reading: by step and variant, over all rounds. Pure.

The figure of a cell is the median of its rounds. A round that did not measure a figure has no part in its median.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import attrs
from hdrh.histogram import HdrHistogram

from blumfeld_bench.result import Ceiling, Measured, Result, SystemCalls, Variant
from blumfeld_bench.workload import Step

CEILING_SHARE = 0.8
"""A rate above this share of the driver's own ceiling is the driver's limit."""
BUSY_SHARE = 0.8
"""A rate is also the driver's limit if its busiest process worked for more than this share of the time."""
REACHED_SHARE = 0.98
"""An offered rate counts as reached from this share on."""
QUANTILES = (50.0, 99.0, 99.9)


@attrs.frozen
class Round:
    """One round of one variant in one step, with decoded histograms. Percentiles are in µs."""

    measured: Measured
    produce: HdrHistogram | None
    end_to_end: HdrHistogram | None
    produce_us: dict[float, float]
    end_to_end_us: dict[float, float]

    @property
    def cpu_s(self) -> float | None:
        """CPU time of the server's processes, user and kernel; None where they aren't known."""
        server = self.measured.server
        return None if server is None else server.user_s + server.system_s

    @property
    def moved_bytes(self) -> float:
        """Bytes of record values written and read in the measured part."""
        seen = self.measured
        written = seen.bytes_per_s if seen.produce_ack is not None else 0.0
        read = seen.received_bytes_per_s or (0.0 if written else seen.bytes_per_s)
        return (written + read) * seen.seconds


@attrs.frozen
class Measure:
    """One figure of a round."""

    key: str
    title: str
    unit: str
    of: Callable[[Round], float | None]


@attrs.frozen
class Cell:
    """One variant in one step."""

    variant: Variant
    step: Step
    rounds: tuple[Round, ...]
    """Rounds in order; empty if the variant could not run the step."""
    ceiling: Ceiling | None
    system_calls: SystemCalls | None

    def values(self, measure: Measure) -> list[float]:
        """Return the figure of each round that has it."""
        figures = (measure.of(cell_round) for cell_round in self.rounds)
        return [value for value in figures if value is not None]

    def median(self, measure: Measure) -> float | None:
        """Return the median over rounds, or None where no round has the figure."""
        values = self.values(measure)
        return statistics.median(values) if values else None

    @property
    def saturated(self) -> bool:
        """Whether the load was a closed loop: its latencies are a full server's, whatever was offered."""
        return self.step.produce is not None and self.step.produce.rate_per_s == 0

    @property
    def ceiling_share(self) -> float | None:
        """The rate as a share of the driver's ceiling; None where that wasn't measured."""
        rate = self.median(RATE)
        if rate is None or self.ceiling is None or not self.ceiling.records_per_s:
            return None
        return rate / self.ceiling.records_per_s

    @property
    def busy(self) -> float:
        """Busy share of the driver's busiest process, median of rounds."""
        return (
            statistics.median(cell_round.measured.driver.busy for cell_round in self.rounds)
            if self.rounds
            else 0.0
        )

    @property
    def late_us(self) -> float | None:
        """Lateness p99 of the driver itself, median of rounds; ``None`` in a closed loop."""
        if self.saturated or self.step.produce is None or not self.rounds:
            return None
        return statistics.median(cell_round.measured.driver.late_us_p99 for cell_round in self.rounds)

    @property
    def is_the_drivers(self) -> bool:
        """Whether the driver's limit was measured, not the server's."""
        return (self.ceiling_share or 0.0) > CEILING_SHARE or self.busy > BUSY_SHARE

    @property
    def errors(self) -> int:
        """Number of errors in all rounds."""
        return sum(cell_round.measured.errors for cell_round in self.rounds)

    @property
    def first_error(self) -> str:
        """The first error in words, or an empty string."""
        return next(
            (cell_round.measured.error for cell_round in self.rounds if cell_round.measured.error), ""
        )

    @property
    def calls_per_request(self) -> dict[str, float]:
        """System calls for each request by name, most frequent first; empty if they weren't counted."""
        counted = self.system_calls
        if counted is None or not counted.requests:
            return {}
        ordered = sorted(counted.by_name.items(), key=lambda item: (-item[1], item[0]))
        return {name: number / counted.requests for name, number in ordered}


@attrs.frozen
class StepCells:
    """One step, with its variants in their order."""

    step: Step
    cells: tuple[Cell, ...]

    def has(self, measure: Measure) -> bool:
        """Whether some variant has a value of this figure."""
        return any(cell.values(measure) for cell in self.cells)


def cells_of(result: Result) -> tuple[StepCells, ...]:
    """Return all steps of a result."""
    return tuple(
        StepCells(step, tuple(_cell(result, step, variant) for variant in result.variants))
        for step in result.workload.steps
    )


def _cell(result: Result, step: Step, variant: Variant) -> Cell:
    mine = [
        round_result
        for round_result in result.measured
        if round_result.step == step.name and round_result.variant == variant.label
    ]
    calls = (
        call_count
        for call_count in result.system_calls
        if call_count.step == step.name and call_count.variant == variant.label
    )
    return Cell(
        variant=variant,
        step=step,
        rounds=tuple(
            open_round(round_result)
            for round_result in sorted(mine, key=lambda round_result: round_result.round)
        ),
        ceiling=next((ceiling for ceiling in result.ceilings if ceiling.step == step.name), None),
        system_calls=next(calls, None),
    )


def open_round(measured: Measured) -> Round:
    """Return a round with its histograms decoded."""
    produce, end_to_end = _opened(measured.produce_ack), _opened(measured.end_to_end)
    return Round(measured, produce, end_to_end, _quantiles_us(produce), _quantiles_us(end_to_end))


def _opened(encoded: str | None) -> HdrHistogram | None:
    if encoded is None:
        return None
    histogram = HdrHistogram.decode(encoded)
    return histogram if histogram.get_total_count() else None


def _quantiles_us(histogram: HdrHistogram | None) -> dict[float, float]:
    if histogram is None:
        return {}
    percentiles = histogram.get_percentile_to_value_dict(list(QUANTILES))
    return {share: value / 1000 for share, value in percentiles.items()}


def _per_request(amount: float | None, of: Round) -> float | None:
    return amount / of.measured.requests if amount is not None and of.measured.requests else None


def _switches(of: Round) -> float | None:
    server = of.measured.server
    if server is None:
        return None
    return _per_request((server.voluntary_switches + server.involuntary_switches) * 1000, of)


def _cpu_per_mb(of: Round) -> float | None:
    return of.cpu_s * 1e3 / (of.moved_bytes / 1e6) if of.cpu_s is not None and of.moved_bytes else None


def _cpu_us_per_request(of: Round) -> float | None:
    return _per_request(None if of.cpu_s is None else of.cpu_s * 1e6, of)


def _rss_mb(of: Round) -> float | None:
    return None if of.measured.server is None else of.measured.server.rss_bytes / 1e6


def _received(of: Round) -> float | None:
    return of.measured.received_bytes_per_s / 1e6 if of.measured.received_bytes_per_s else None


RATE = Measure("rate", "records/s", "1/s", lambda of: of.measured.records_per_s)
TRANSACTIONS = Measure(
    "transactions", "transactions/s", "1/s", lambda of: of.measured.transactions_per_s or None
)
MEGABYTES = Measure("megabytes", "MB/s", "", lambda of: of.measured.bytes_per_s / 1e6)
PRODUCE_P50 = Measure("produce_p50", "ack p50", "µs", lambda of: of.produce_us.get(50.0))
PRODUCE_P99 = Measure("produce_p99", "ack p99", "µs", lambda of: of.produce_us.get(99.0))
PRODUCE_P999 = Measure("produce_p999", "ack p99.9", "µs", lambda of: of.produce_us.get(99.9))
END_TO_END_P50 = Measure("end_to_end_p50", "e2e p50", "µs", lambda of: of.end_to_end_us.get(50.0))
END_TO_END_P99 = Measure("end_to_end_p99", "e2e p99", "µs", lambda of: of.end_to_end_us.get(99.0))
RECEIVED = Measure("received", "received MB/s", "", _received)
CPU_PER_REQUEST = Measure("cpu_per_request", "CPU/request", "µs", _cpu_us_per_request)
CPU_PER_MB = Measure("cpu_per_mb", "CPU/MB", "ms", _cpu_per_mb)
RSS = Measure("rss", "RSS", "MB", _rss_mb)
SWITCHES = Measure("switches", "switches/1k req", "", _switches)

MEASURES = (
    TRANSACTIONS,
    RATE,
    MEGABYTES,
    PRODUCE_P50,
    PRODUCE_P99,
    PRODUCE_P999,
    END_TO_END_P50,
    END_TO_END_P99,
    RECEIVED,
    CPU_PER_REQUEST,
    CPU_PER_MB,
    RSS,
    SWITCHES,
)
