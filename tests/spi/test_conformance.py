"""An object is held against a Protocol: what it lacks is said, and what it has in its own way is let be."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Protocol, cast

import pytest

from blumfeld.spi.conformance import problems


class Kettle(Protocol):
    litres: float

    @property
    def lid(self) -> str: ...

    def fill(self, litres: float, *, cold: bool = True) -> float: ...

    async def boil(self, degrees: int) -> None: ...


class Enamelled(Kettle, Protocol):
    colour: str


class Good:
    litres = 1.5

    @property
    def lid(self) -> str:
        raise RuntimeError("not before the start")

    def fill(self, litres: float, extra: int = 0, *, cold: bool = True) -> float:
        return litres

    async def boil(self, degrees: int) -> None:
        return None


class HandsOn:
    """As a wrapping part does."""

    def __init__(self, inner: object) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Waits(Good):
    def boil(self, degrees: int) -> Awaitable[None]:  # type: ignore[override]
        raise AssertionError


class Declares(Good):
    colour: str


class Inherits(Kettle):
    """Whose author believes that the Protocol does the work."""


class Few(Good):
    def fill(self, litres: float) -> float:  # type: ignore[override]
        return litres


class More(Good):
    def fill(self, litres: float, how: str, *, cold: bool = True) -> float:  # type: ignore[override]
        return litres


class Sync(Good):
    def boil(self, degrees: int) -> None:  # type: ignore[override]
        return None


class TooAsync(Good):
    async def fill(self, litres: float, *, cold: bool = True) -> float:  # type: ignore[override]
        return litres


class NoMethod(Good):
    fill = 5  # type: ignore[assignment]


@pytest.mark.parametrize("part", [Good(), HandsOn(Good()), Waits(), Good, Waits])
def test_what_can_be_called_as_it_says_passes(part: object) -> None:
    assert problems(part, Kettle) == []


def test_an_attribute_may_be_declared_and_come_later() -> None:
    assert problems(Declares(), Enamelled) == []
    assert problems(Good(), Enamelled) == ["no colour"]
    assert problems(Good, Enamelled) == []


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (cast("Any", Inherits)(), ["no litres", "no lid", "no fill(litres, cold=…)", "no boil(degrees)"]),
        (Few(), ["fill(litres: 'float') -> 'float': it is called as fill(litres, cold=…)"]),
        (Sync(), ["boil is awaited, and is no async def"]),
        (TooAsync(), ["fill is an async def, and is not awaited"]),
        (NoMethod(), ["no fill(litres, cold=…), but fill is 5"]),
        (HandsOn(object()), ["no litres", "no lid", "no fill(litres, cold=…)", "no boil(degrees)"]),
    ],
    ids=lambda part: type(part).__name__ if not isinstance(part, list) else "",
)
def test_what_is_missing_is_said(part: object, said: list[str]) -> None:
    assert problems(part, Kettle) == said


def test_an_argument_that_nobody_gives_is_said() -> None:
    (said,) = problems(More(), Kettle)
    assert said.startswith("fill(litres: 'float', how: 'str'")
    (said,) = problems(More, Kettle)
    assert "it is called as fill(litres, cold=…)" in said
