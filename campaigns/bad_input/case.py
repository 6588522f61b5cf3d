"""Cases of bad input, and what came of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from campaigns.bad_input.target import Target


@dataclass(frozen=True)
class Case:
    """One row of the table: what is done, and what must come back.

    ``act`` gives what came back in the words of ``expected``: an error's name, or ``closed``.
    """

    title: str
    expected: str
    act: Callable[[Target], str]
    kafka: str = ""
    """The answer of Apache Kafka 4.3.1, where it is another one."""


@dataclass(frozen=True)
class Result:
    """One case after it was run."""

    case: Case
    came: str
    serves_on: str
    """Empty, or what failed in the round trip after it."""

    @property
    def good(self) -> bool:
        """As it must be, and the broker serves on."""
        return self.came == self.case.expected and not self.serves_on


def run_cases(cases: Iterable[Case], target: Target, said: Callable[[Result], None]) -> list[Result]:
    """Run each case, with a round trip after it. Whatever a case raises is what came back.

    :param said: called after each
    """
    results = []
    for case in cases:
        try:
            came = case.act(target)
        except Exception as error:
            came = f"{type(error).__name__}: {error}"
        results.append(Result(case, came, target.round_trip()))
        said(results[-1])
    return results
