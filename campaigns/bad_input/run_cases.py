"""Run cases one after the other, with a round trip after each."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from campaigns.bad_input.case import Case, Result
from campaigns.bad_input.target import Target


def run_cases(cases: Iterable[Case], target: Target, said: Callable[[Result], None]) -> list[Result]:
    """Do each; whatever a case raises is what came back. ``said`` is called after each."""
    results = []
    for case in cases:
        try:
            came = case.act(target)
        except Exception as error:
            came = f"{type(error).__name__}: {error}"
        result = Result(case, came, target.round_trip())
        results.append(result)
        said(result)
    return results
