"""Short runs of a driver, for tests."""

from __future__ import annotations

from typing import Literal

from hdrh.histogram import HdrHistogram

from blumfeld_bench.drivers.contract import Outcome, Progress, Task
from blumfeld_bench.drivers.driver import make_driver
from blumfeld_bench.workload import Step, Workload


class Watch:
    def __init__(self) -> None:
        self.marks: list[str] = []
        self.seen: list[Progress] = []

    def measuring_begins(self) -> None:
        self.marks.append("begins")

    def measuring_ended(self) -> None:
        self.marks.append("ended")


def workload(step: Step, driver: Literal["wire", "librdkafka"] = "wire", processes: int = 1) -> Workload:
    return Workload(name="test", description="for a test", driver=driver, processes=processes, steps=(step,))


def run(
    port: int,
    step: Step,
    *,
    topic: str = "t",
    driver: Literal["wire", "librdkafka"] = "wire",
    processes: int = 1,
    watch: Watch | None = None,
    goes_first: bool = False,
) -> Outcome:
    watch = watch or Watch()
    made = make_driver(workload(step, driver, processes), goes_first)
    try:
        task = Task(host="127.0.0.1", port=port, topic=topic, step=step, seed=7)
        return made.run(task, watch, watch.seen.append)
    finally:
        made.close()


def percentile_ms(histogram: str | None, percentile: float) -> float:
    assert histogram is not None
    return float(HdrHistogram.decode(histogram).get_value_at_percentile(percentile)) / 1e6


def count(histogram: str | None) -> int:
    return 0 if histogram is None else int(HdrHistogram.decode(histogram).get_total_count())
