"""Functions of handlers in their form before ``ApiHandler.handle`` gave steps. Blumfeld 0.2.0 takes this module out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from blumfeld.spi.completion import Steps
from blumfeld.spi.context import ApiHandler, RequestContext, TakesSteps
from blumfeld.spi.steps import KEY_CHARACTERS_AT_ONCE, result_of, steps_by_parts

ServeInSteps: TypeAlias = "Callable[[Any, RequestContext], Steps[Any]]"
"""Serves one large request."""


def by_elements(
    handler: Callable[[], ApiHandler], asked: tuple[str, ...], answered: tuple[str, ...], **bounds: Any
) -> ServeInSteps:
    """The steps of ``spi.steps.in_parts``, with the functions of a handler."""

    def serve(request: Any, context: RequestContext) -> Steps[Any]:
        whole: Any = handler()
        return steps_by_parts(whole.handle, whole.error_response, asked, answered, **bounds)(request, context)

    return serve


def check_keys(keys: Iterable[str]) -> None:
    """Check that the keys of a request are short enough to be hashed at once: ``spi.steps.in_parts`` does now.

    :raises TakesSteps: they aren't, though they may be few
    """
    if sum(map(len, keys)) > KEY_CHARACTERS_AT_ONCE:
        raise TakesSteps


def error_steps(handler: ApiHandler, request: Any, code: int, message: str | None) -> Steps[Any]:
    """The steps to a handler's answer that says this error for everything asked."""
    return (yield from result_of(handler.error_response(request, code, message)))
