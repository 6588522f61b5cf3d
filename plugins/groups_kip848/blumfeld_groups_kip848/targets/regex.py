"""Regular expressions of subscriptions, in RE2 syntax (KIP-848). An expression must match a topic's whole
name. :mod:`blumfeld.coordinator.expressions` has the bounds of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from blumfeld.coordinator.expressions import ExpressionError, compiled
from blumfeld.wire.errors import BrokerError, ErrorCode

MEMORY_BYTES_MAX = 1 << 20
"""Memory of one compiled expression of a subscription."""


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

    An expression that this engine cannot read matches nothing: another broker's engine may have accepted it
    into the log.
    """
    import re2

    options = re2.Options()
    options.log_errors = False
    expressions = re2.Set.FullMatchSet(options)
    readable = []
    for regex in regexes:
        try:
            expressions.Add(regex)
        except re2.error:
            continue
        readable.append(regex)
    found: dict[str, list[str]] = {regex: [] for regex in regexes}
    if readable:
        try:
            expressions.Compile()
        except re2.error:
            # Together they take more memory than one expression may. Each may still be usable by itself.
            known = list(names)
            return {regex: _matching_one(regex, known) for regex in regexes}
        for name in names:
            for nth in expressions.Match(name) or ():
                found[readable[nth]].append(name)
    return {regex: tuple(sorted(matched)) for regex, matched in found.items()}


def _matching_one(regex: str, names: Sequence[str]) -> tuple[str, ...]:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        fullmatch = re2.compile(regex, options).fullmatch
    except re2.error:
        return ()
    return tuple(sorted(name for name in names if fullmatch(name)))
