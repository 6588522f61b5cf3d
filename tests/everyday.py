"""What `make test` leaves to `make test-all`.

Further seeds of a simulation and further examples of a property find less the more there were before. An everyday run
tries the first of them. `make test-all` tries them all: it has the slow tests and the profile "whole".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import settings

WHOLE_EXAMPLES = 100
"""The number of examples of the profile "whole"."""


def first(count: int, values: Iterable[Any]) -> list[Any]:
    """Parameters of which the first few are tried every day. The others are marked slow."""
    return [value if at < count else slow(value) for at, value in enumerate(values)]


def slow(value: Any) -> Any:
    """A parameter, or a tuple of parameters, that is left to `make test-all`."""
    return pytest.param(*(value if type(value) is tuple else (value,)), marks=pytest.mark.slow)


def for_each(values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Decorates a test without fixtures, which is called with each value, or with the members of each tuple.

    All of them are one item of pytest. Its failure names every value for which the test fails, and shows the first. An
    item costs each worker about a millisecond, and there are thousands of values.
    """
    cases = [value if type(value) is tuple else (value,) for value in values]
    assert cases

    def decorate(test: Callable[..., None]) -> Callable[[], None]:
        def test_all() -> None:
            failed: dict[str, Exception] = {}
            for case in cases:
                try:
                    test(*case)
                except Exception as error:
                    failed[", ".join(map(str, case))] = error
            if failed:
                named = "\n".join(failed)
                raise AssertionError(f"{len(failed)} of {len(cases)} fail:\n{named}") from next(
                    iter(failed.values())
                )

        for name in ("__name__", "__qualname__", "__doc__", "__module__"):
            setattr(test_all, name, getattr(test, name))
        return test_all

    return decorate


def examples(whole: int, *, at_least: int = 8) -> int:
    """The number of examples that a property gets which has ``whole`` of them in `make test-all`."""
    return min(whole, max(at_least, whole * settings().max_examples // WHOLE_EXAMPLES))
