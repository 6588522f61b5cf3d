"""Promises that a run of a contract kit did not test. The run lists them at its end, so that green isn't read as
proof.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import NoReturn

import pytest

PREFIX = "not tried: "
_BETWEEN = " | "


def not_tried(contract: str, why: str) -> NoReturn:
    """Skip the running test, and have it listed at the end of the run."""
    pytest.skip(f"{PREFIX}{contract}{_BETWEEN}{why}")


def said_by(reason: str) -> tuple[str, str] | None:
    """Return (contract, reason) of a test that :func:`not_tried` skipped, or ``None`` for any other skip."""
    _, prefix, rest = reason.partition(PREFIX)
    contract, between, why = rest.partition(_BETWEEN)
    return (contract, why) if prefix and between else None


def summary(left_out: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """Return the lines of the list at the end of a run.

    :param left_out: (contract, reason, name) of each skipped test
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
