"""Cycles by edges and by time, against every path in small graphs."""

from __future__ import annotations

from itertools import product

import pytest

from blumfeld_kit.simulation.transactions.cycles import find_cycle


def has_cycle(edges: list[list[int]], spans: list[tuple[float, float | None]]) -> bool:
    """By the transitive closure."""
    count = len(edges)
    reach = [
        [
            b in edges[a] or (spans[a][1] is not None and spans[a][1] < spans[b][0])  # type: ignore[operator]
            for b in range(count)
        ]
        for a in range(count)
    ]
    for k, a, b in product(range(count), repeat=3):
        reach[a][b] = reach[a][b] or (reach[a][k] and reach[k][b])
    return any(reach[a][a] for a in range(count))


@pytest.mark.parametrize("ends", list(product((None, 1.5, 2.5), repeat=3)))
def test_a_cycle_is_found_where_there_is_one(ends: tuple[float | None, ...]) -> None:
    for begins in product((1.0, 2.0, 3.0), repeat=3):
        spans = [
            (begin, end if end is None or end > begin else begin)
            for begin, end in zip(begins, ends, strict=True)
        ]
        for first, second in product(product(range(3), repeat=2), repeat=2):
            edges: list[list[int]] = [[], [], []]
            edges[first[0]].append(first[1])
            edges[second[0]].append(second[1])
            cycle = find_cycle(edges, spans)
            assert (cycle is not None) is has_cycle(edges, spans)
            assert cycle is None or cycle[0] == cycle[-1]
