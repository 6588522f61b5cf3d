"""Results as a run would leave them, made of seeded noise: for the tests of what a person sees."""

from __future__ import annotations

import math

import numpy as np
from hdrh.histogram import HdrHistogram

from blumfeld_bench.result import (
    Ceiling,
    DriverUsage,
    Machine,
    Measured,
    Point,
    Result,
    SystemCalls,
    Usage,
    Variant,
)
from blumfeld_bench.statistics.cells import PRODUCE_P99
from blumfeld_bench.statistics.verdict import Comparison
from blumfeld_bench.workload import Consume, Produce, Step, Topic, Workload

LONGEST_NS = 60_000_000_000
MACHINE = Machine(
    cpu="Imaginary 9000 @ 3.00GHz",
    cores=2,
    memory_bytes=24 * 2**30,
    kernel="Linux 6.8.0",
    python="3.11.7",
    virtual=True,
    load_before=0.42,
)
OPEN = Step(
    name="1,000/s",
    produce=Produce(connections=4, rate_per_s=1000, record_bytes_min=64, record_bytes_max=200, keys=16),
    consume=Consume(),
)
CLOSED = Step(
    name="as fast as it goes",
    produce=Produce(connections=16, record_bytes_min=1024, record_bytes_max=1024, batch_records=100),
)
CATCH_UP = Step(name="cold", consume=Consume(start="earliest", groups=2), page_cache="cold")


def synthetic_result(
    *,
    seed: int = 1,
    rounds: int = 5,
    labels: tuple[str, ...] = ("epoll", "uring"),
    effect: float = 1.0,
    steps: tuple[Step, ...] = (OPEN, CLOSED),
    samples: int = 2000,
    ceiling: float = 4.0,
    system_calls: bool = True,
) -> Result:
    """A result in which each variant's latencies are ``effect`` times those of the one before it.

    :param samples: latencies in a round's histogram
    :param ceiling: what the driver reaches alone, as a multiple of the rates
    """
    random = np.random.default_rng(seed)
    measured: list[Measured] = []
    for number in range(rounds):
        order = labels if number % 2 == 0 else labels[::-1]
        for label in order:
            factor = effect ** labels.index(label)
            for step in steps:
                measured.append(_measured(random, step, label, number, len(measured), factor, samples))
    return Result(
        blumfeld="0.2.0",
        created="2026-11-21T12:00:00Z",
        seed=seed,
        quick=False,
        rounds=rounds,
        machine=MACHINE,
        workload=Workload(
            name="synthetic",
            description="Seeded noise: no server was asked.",
            topic=Topic(partitions=4),
            steps=steps,
            sustained_p99_ms=10.0,
        ),
        variants=tuple(_variant(label) for label in labels),
        ceilings=tuple(
            Ceiling(step=s.name, records_per_s=_rate(s) * ceiling, bytes_per_s=0.0) for s in steps
        ),
        measured=tuple(measured),
        system_calls=_system_calls(labels, steps) if system_calls else (),
    )


def comparison(ratio: float, low: float, high: float, *, different: bool = False) -> Comparison:
    return Comparison(
        step=OPEN.name,
        variant="uring",
        baseline="epoll",
        measure=PRODUCE_P99,
        headline=True,
        rounds=8,
        seen=None,
        ratio=ratio,
        low=low,
        high=high,
        different=different,
    )


def _variant(label: str) -> Variant:
    return Variant(
        label=label,
        kind="manifest",
        given=f"{label}.toml",
        manifest=f'[network]\nplugin = "net_{label}"  # <&> stays text\n',
        command=("blumfeld", "run", "--data-dir", "{folder}/data", "--listen", "127.0.0.1:{port}"),
        versions={"blumfeld": "0.2.0"},
        network=f"{label} (made up)",
        durability="page cache",
    )


def _rate(step: Step) -> float:
    produce = step.produce
    if produce is None:
        return 400_000.0
    return produce.rate_per_s or 40_000.0


def _measured(
    random: np.random.Generator,
    step: Step,
    label: str,
    number: int,
    position: int,
    factor: float,
    samples: int,
) -> Measured:
    wobble = factor * math.exp(random.normal(0, 0.03))
    rate = _rate(step) if step.produce and step.produce.rate_per_s else _rate(step) / wobble
    ack_ns = random.lognormal(math.log(300_000 * wobble), 0.5, samples)
    size = 132 if step is OPEN else 1024
    requests = int(rate * step.measure_s / (step.produce.batch_records if step.produce else 500))
    cpu_s = requests * 40e-6 * wobble
    return Measured(
        variant=label,
        step=step.name,
        round=number,
        position=position,
        seconds=step.measure_s,
        offered_per_s=step.produce.rate_per_s if step.produce else 0.0,
        records_per_s=rate,
        bytes_per_s=rate * size,
        received_bytes_per_s=rate * size * (step.consume.groups if step.consume else 0),
        requests=requests,
        errors=0,
        produce_ack=histogram(ack_ns) if step.produce else None,
        end_to_end=histogram(ack_ns * 1.6) if step.produce and step.consume else None,
        series=_series(random, step, rate, size, wobble),
        server=Usage(
            user_s=cpu_s * 0.6,
            system_s=cpu_s * 0.4,
            rss_bytes=int(38e6),
            rss_max_bytes=int(40e6),
            voluntary_switches=requests // 3,
            involuntary_switches=requests // 50,
        ),
        driver=DriverUsage(user_s=0.5, system_s=0.5, busy=0.3, late_us_p99=20.0),
        ready_s=0.25,
    )


def _series(
    random: np.random.Generator, step: Step, rate: float, size: int, wobble: float
) -> tuple[Point, ...]:
    points = []
    for second in range(-int(step.warm_up_s) + 1, int(step.measure_s) + 1):
        p50 = 300 * wobble * math.exp(random.normal(0, 0.05))
        seen = rate * math.exp(random.normal(0, 0.01))
        points.append(
            Point(
                at_s=float(second),
                records_per_s=seen,
                bytes_per_s=seen * size,
                p50_us=p50,
                p99_us=p50 * 3.2,
                max_us=p50 * 6,
            )
        )
    return tuple(points)


def histogram(latencies_ns: np.ndarray) -> str:
    whole = HdrHistogram(1, LONGEST_NS, 3)
    for value in latencies_ns:
        whole.record_value(int(value))
    return str(whole.encode().decode())


def _system_calls(labels: tuple[str, ...], steps: tuple[Step, ...]) -> tuple[SystemCalls, ...]:
    return tuple(
        SystemCalls(
            variant=label,
            step=step.name,
            requests=1000,
            by_name=(
                {"recvfrom": 1000, "sendmsg": 990, "writev": 700, "epoll_wait": 650}
                if index == 0
                else {"io_uring_enter": 710, "writev": 690}
            ),
        )
        for step in steps
        for index, label in enumerate(labels)
    )
