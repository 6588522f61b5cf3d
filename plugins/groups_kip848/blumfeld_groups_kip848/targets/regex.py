"""Regular expressions of subscriptions, in RE2 syntax (KIP-848). An expression must match a topic's whole
name. :mod:`blumfeld.coordinator.expressions` has the bounds of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from blumfeld.coordinator.expressions import ExpressionError, check_bounds, compiled
from blumfeld.wire.errors import BrokerError, ErrorCode

MEMORY_BYTES_MAX = 1 << 20
"""Memory of one compiled expression of a subscription."""
SET_BYTES_MAX = 8 << 20
"""Memory of all expressions of a group together, and of one that another broker has accepted."""


def check(regex: str) -> None:
    """Check that the expression can be used.

    :raises BrokerError: INVALID_REGULAR_EXPRESSION
    """
    try:
        compiled(regex, MEMORY_BYTES_MAX)
    except ExpressionError as error:
        message = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}."
        raise BrokerError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from error


def matching(regexes: Sequence[str], names: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """The sorted names that each expression matches; one pass serves all expressions.

    An expression that can't be read here, or is out of bounds, matches nothing: another broker's engine may have
    accepted it into the log.
    """
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = SET_BYTES_MAX
    expressions = re2.Set.FullMatchSet(options)
    readable = []
    for regex in regexes:
        try:
            check_bounds(regex)
            expressions.Add(regex)
        except (ExpressionError, re2.error):
            continue
        readable.append(regex)
    topics: dict[str, list[str]] = {regex: [] for regex in regexes}
    if readable:
        try:
            expressions.Compile()
        except re2.error:
            # Together they take more memory than one expression may. Each may still be usable by itself.
            known = list(names)
            return {regex: _matching_one(regex, known) for regex in regexes}
        for name in names:
            for nth in expressions.Match(name) or ():
                topics[readable[nth]].append(name)
    return {regex: tuple(sorted(matched)) for regex, matched in topics.items()}


def _matching_one(regex: str, names: Sequence[str]) -> tuple[str, ...]:
    try:
        fullmatch = compiled(regex, SET_BYTES_MAX).fullmatch
    except ExpressionError:
        return ()
    return tuple(sorted(name for name in names if fullmatch(name)))
