"""Medians of rounds for each cell, and verdicts by the bench's own statistics.

A verdict covers a protocol as a whole: the sum over all sizes and events of a round, compared within rounds. Single
cells get no verdict; there are too many of them for few rounds. In a KIP-848 group the time to stable of one event is
mostly a lottery: it depends on when the few members that get a partition send their next heartbeat. The time to
converge is not. Two questions are tested together: is a server faster than the first one at the same protocol; and,
with the rest of the level, is a protocol faster than eager on the same server.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence

import attrs

from blumfeld_bench.rebalance.result import RebalanceResult, Sample
from blumfeld_bench.rebalance.settings import PROTOCOLS
from blumfeld_bench.statistics.cells import Measure
from blumfeld_bench.statistics.intervals import paired
from blumfeld_bench.statistics.verdict import Comparison, Pair, judged

LEAST_S = 0.001
"""A shorter time to stable counts as this: zero has no ratio."""
BUSY_SHARE = 0.8
"""A driver that was busy for longer than this share of a rebalance may be the limit that was measured."""

STABLE = Measure("stable", "time to stable", "s", lambda sample: None)
CONVERGED = Measure("converged", "time to converge", "s", lambda sample: None)
CPU = Measure("cpu", "CPU time of rebalances", "s", lambda sample: None)


@attrs.frozen
class Key:
    """The compared unit: the same event in the same kind of group."""

    size: int
    scenario: str
    protocol: str


def keys_of(result: RebalanceResult) -> list[Key]:
    """Return all measured keys, in the order of the settings."""
    settings = result.settings
    measured = {Key(sample.size, sample.scenario, sample.protocol) for sample in result.samples}
    return [
        key
        for size in settings.sizes
        for scenario in settings.scenarios
        for protocol in settings.protocols
        if (key := Key(size, scenario, protocol)) in measured
    ]


def samples_of(result: RebalanceResult, variant: str, key: Key) -> list[Sample]:
    """Return the samples of all rounds, in order."""
    return [
        sample
        for sample in result.samples
        if sample.variant == variant and Key(sample.size, sample.scenario, sample.protocol) == key
    ]


def median_of(samples: Sequence[Sample], of: Callable[[Sample], float | None]) -> float | None:
    """Return the median over rounds; None where no round has a value."""
    values = [value for sample in samples if (value := of(sample)) is not None]
    return statistics.median(values) if values else None


def ratio_of(result: RebalanceResult, variant: str, key: Key) -> float | None:
    """Return the median over rounds of a variant's time to stable divided by the first variant's; None for the
    first.
    """
    first = result.variants[0].label
    if variant == first:
        return None
    theirs = {sample.round: max(LEAST_S, sample.stable_s) for sample in samples_of(result, first, key)}
    ours = {sample.round: max(LEAST_S, sample.stable_s) for sample in samples_of(result, variant, key)}
    ratios = [ours[number] / theirs[number] for number in sorted(ours.keys() & theirs.keys())]
    return statistics.median(ratios) if ratios else None


def verdicts_of(result: RebalanceResult) -> tuple[Comparison, ...]:
    """Return all comparisons of a run, tested together."""
    return judged([*_servers(result), *_protocols(result)])


def cautions_of(result: RebalanceResult) -> Iterator[str]:
    """Yield warnings that a reader of the verdicts needs."""
    busy = [entry for entry in result.samples if entry.driver_busy > BUSY_SHARE]
    if busy:
        yield (
            f"in {len(busy)} of {len(result.samples)} rebalances the driver was busy: "
            "their times may be the driver's, not the server's"
        )
    contested = sum(entry.contested for entry in result.samples)
    if contested:
        yield f"{contested} times a member was given a partition that another one still had"
    faults: dict[str, int] = {}
    for sample in result.samples:
        for name, count in sample.faults.items():
            faults[f"{sample.variant} {name}"] = faults.get(f"{sample.variant} {name}", 0) + count
    for name, count in sorted(faults.items()):
        yield f"{name}: {count} times; a group whose members are all in time has none"
    for failure in result.failures:
        yield f"not measured: {failure.variant}, round {failure.round + 1}, {failure.where}: {failure.error}"
    if result.interrupted:
        yield "the run was interrupted"


def _servers(result: RebalanceResult) -> Iterator[Pair]:
    first, *others = [variant.label for variant in result.variants]
    for protocol in result.settings.protocols:
        for other in others:
            for measure in (STABLE, CONVERGED, CPU):
                sides = _sides(result, (first, protocol), (other, protocol), measure)
                yield _pair(protocol, other, first, measure, sides, headline=True)


def _protocols(result: RebalanceResult) -> Iterator[Pair]:
    if PROTOCOLS[0] not in result.settings.protocols:
        return
    for variant in result.variants:
        for protocol in result.settings.protocols:
            if protocol != PROTOCOLS[0]:
                base_side, other = (variant.label, PROTOCOLS[0]), (variant.label, protocol)
                sides = _sides(result, base_side, other, STABLE)
                yield _pair(f"on {variant.label}", protocol, PROTOCOLS[0], STABLE, sides, headline=False)


Sides = tuple[list[float], list[float]]


def _sides(
    result: RebalanceResult, first: tuple[str, str], second: tuple[str, str], measure: Measure
) -> Sides:
    """Return one value a round for each (variant, protocol), over the events that both have in that round."""
    values: Sides = ([], [])
    for number in range(result.rounds):
        events_by_side = [_events(result, side, number, measure) for side in (first, second)]
        common = sorted(events_by_side[0].keys() & events_by_side[1].keys())
        sums = [sum(side[event] for event in common) for side in events_by_side]
        if common and min(sums) > 0:
            for side, value in zip(values, sums, strict=True):
                side.append(value)
    return values


def _events(
    result: RebalanceResult, side: tuple[str, str], number: int, measure: Measure
) -> dict[tuple[int, str], float]:
    events = {}
    for sample in result.samples:
        if (sample.variant, sample.protocol) == side and sample.round == number:
            value = _value(sample, measure)
            if value is not None:
                events[sample.size, sample.scenario] = value
    return events


def _value(sample: Sample, measure: Measure) -> float | None:
    return sample.cpu_s if measure is CPU else sample.converged_s if measure is CONVERGED else sample.stable_s


def _pair(step: str, variant: str, baseline: str, measure: Measure, sides: Sides, *, headline: bool) -> Pair:
    return Pair(
        step=step,
        variant=variant,
        baseline=baseline,
        measure=measure,
        headline=headline,
        rounds=len(sides[0]),
        seen=paired(*sides),
    )
