"""Runs that were never made: figures of rounds drawn from seeded noise, as unruly as a shared machine's."""

from __future__ import annotations

import math

import attrs
import numpy as np

from blumfeld_bench.plan.schedule import turns_of
from blumfeld_bench.result import DriverUsage, Measured, Result, Usage
from blumfeld_bench.statistics.cells import Cell, Round, StepCells
from tests.bench.synthetic import OPEN, synthetic_result

LABELS = ("one", "two")


@attrs.frozen
class Noise:
    """How figures of a round scatter. All are shares: 0.03 is 3 %."""

    round_to_round: float = 0.03
    """Of each variant's figures, log-normal, or Student's t with 3 degrees of freedom if ``heavy``."""
    between_rounds: float = 0.05
    """Shared by the variants of a round."""
    drift: float = 0.10
    """From the first turn to the last."""
    heavy: bool = False
    outliers: float = 0.0
    """Chance that something else happens in a turn, which makes it 1.2 to 3 times as slow."""


def simulated(
    seed: int, rounds: int, noise: Noise, effect: float = 1.0
) -> tuple[Result, tuple[StepCells, ...]]:
    """A result without rounds, and its cells with them; the second variant's figures are ``effect`` times the first's.

    Produce p99 scatters three times as much as the rest, p99.9 five times.
    """
    random = np.random.default_rng(seed)
    turns = turns_of(LABELS, rounds)
    together = random.normal(0, noise.between_rounds, rounds)
    found: dict[str, list[Round]] = {label: [] for label in LABELS}
    for turn in turns:
        slow = together[turn.round] + noise.drift * turn.position / len(turns)
        if random.random() < noise.outliers:
            slow += math.log(random.uniform(1.2, 3.0))
        if turn.variant == LABELS[1]:
            slow += math.log(effect)
        scatter = _scatter(random, noise, 8)
        found[turn.variant].append(_round(turn.variant, turn.round, turn.position, slow, scatter))
    result = synthetic_result(rounds=0, labels=LABELS, steps=(OPEN,))
    variants = {variant.label: variant for variant in result.variants}
    cells = tuple(Cell(variants[label], OPEN, tuple(found[label]), None, None) for label in LABELS)
    return result, (StepCells(OPEN, cells),)


def _scatter(random: np.random.Generator, noise: Noise, size: int) -> list[float]:
    drawn = random.standard_t(3, size) / math.sqrt(3) if noise.heavy else random.standard_normal(size)
    return [float(value) * noise.round_to_round for value in drawn]


def _round(label: str, number: int, position: int, slow: float, scatter: list[float]) -> Round:
    p50, p99, p999, e2e_p50, e2e_p99, user, system, memory = scatter
    cpu_s = 0.2 * math.exp(slow)
    measured = Measured(
        variant=label,
        step=OPEN.name,
        round=number,
        position=position,
        seconds=5.0,
        offered_per_s=1000.0,
        records_per_s=1000.0,
        bytes_per_s=132_000.0,
        received_bytes_per_s=132_000.0,
        requests=5000,
        errors=0,
        produce_ack="",
        server=Usage(
            user_s=0.6 * cpu_s * math.exp(user),
            system_s=0.4 * cpu_s * math.exp(system),
            rss_bytes=int(40e6 * math.exp(slow + memory)),
            rss_max_bytes=int(50e6),
            voluntary_switches=100,
            involuntary_switches=10,
        ),
        driver=DriverUsage(user_s=0.1, system_s=0.1, busy=0.1, late_us_p99=10.0),
    )
    produce = {
        50.0: 300 * math.exp(slow + p50),
        99.0: 900 * math.exp(slow + 3 * p99),
        99.9: 2000 * math.exp(slow + 5 * p999),
    }
    end_to_end = {50.0: 500 * math.exp(slow + e2e_p50), 99.0: 1500 * math.exp(slow + 3 * e2e_p99)}
    return Round(measured, None, None, produce, end_to_end)
