"""Promises of a contract that a run of its kit did not try: said at the end, so that green isn't read as proof."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import NoReturn

import pytest

PREFIX = "not tried: "
_BETWEEN = " | "


def not_tried(contract: str, why: str) -> NoReturn:
    """Leave the running test out, and have it listed."""
    pytest.skip(f"{PREFIX}{contract}{_BETWEEN}{why}")


def said_by(reason: str) -> tuple[str, str] | None:
    """(contract, why) of a test that was left out by :func:`not_tried`; ``None`` for any other skip."""
    _, found, rest = reason.partition(PREFIX)
    contract, between, why = rest.partition(_BETWEEN)
    return (contract, why) if found and between else None


def summary(left_out: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """Lines for a person.

    :param left_out: (contract, why, the test's name) of each test
    """
    by_contract: dict[str, dict[str, list[str]]] = {}
    for contract, why, test in left_out:
        by_contract.setdefault(contract, {}).setdefault(why, []).append(test)
    for contract, reasons in sorted(by_contract.items()):
        count = sum(map(len, reasons.values()))
        yield f"{contract}: {count} test{'s were' if count > 1 else ' was'} not tried"
        for why, tests in sorted(reasons.items()):
            yield f"  {why}"
            names = ", ".join(sorted(set(tests)))
            yield from textwrap.wrap(names, 120, initial_indent="      ", subsequent_indent="      ")
