"""Seeds as a person names them."""

from __future__ import annotations

from blumfeld_kit.simulation.seeds import seeds_of


def test_seeds_are_named_one_by_one_or_as_ranges() -> None:
    assert seeds_of("3") == [3]
    assert seeds_of("1,4-6") == [1, 4, 5, 6]
