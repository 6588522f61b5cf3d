"""Regular expressions of subscriptions, in RE2 syntax (KIP-848). An expression must match a topic's whole
name. :mod:`blumfeld.coordinator.expressions` has the bounds of one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from heapq import merge

from blumfeld.coordinator.expressions import ExpressionError, compiled
from blumfeld.wire.errors import BrokerError, ErrorCode

MEMORY_BYTES_MAX = 1 << 20
"""Memory of one compiled expression of a subscription."""
SET_BYTES_MAX = 8 << 20
"""Memory of expressions that are matched together, and of one that another broker has accepted."""
INSTRUCTIONS_TOGETHER_MAX = 4_000
"""Size of the compiled expressions that are matched together. RE2 compiles as many in about 2 ms, and matches them
in about the time of one."""
COST_OF_A_STEP = 100
COST_ALONE = 6
"""Cost of a name that is matched by a single expression, without a set."""
RIGHT_COST = 3
"""Cost of the question whether a topic may be seen. A thousand ACLs on prefixes make it 3 µs."""
WILD = 8_000
"""A name costs one more for so many of its characters times instructions. Most expressions take a microsecond a name,
but a wild one may look at all of its instructions for each character: at a millisecond a name."""
SORTED_AT_ONCE = 1_000

_Matches = Callable[[str], Sequence[str]]
"""A name → the expressions that match it."""


def check(regex: str) -> None:
    """Check that the expression can be used.

    :raises BrokerError: INVALID_REGULAR_EXPRESSION
    """
    try:
        compiled(regex, MEMORY_BYTES_MAX)
    except ExpressionError as error:
        message = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}."
        raise BrokerError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from error


def matching(
    regexes: Sequence[str], names: Sequence[str], may_see: Callable[[str], bool]
) -> Generator[int, None, dict[str, tuple[str, ...]]]:
    """The sorted names that each expression matches, without those that ``may_see`` refuses. Each step yields its
    cost: about its time in microseconds.

    An expression that can't be read here, or is out of bounds, matches nothing: another broker's engine may have
    accepted it into the log.
    """
    topics: dict[str, list[str]] = {regex: [] for regex in regexes}
    for matches, instructions in (yield from _engines(regexes)):
        least = 1 if instructions <= INSTRUCTIONS_TOGETHER_MAX else COST_ALONE
        cost = 0
        for name in names:
            matched = matches(name)
            cost += least + instructions * len(name) // WILD
            if matched and may_see(name):
                cost += RIGHT_COST + len(matched)
                for regex in matched:
                    topics[regex].append(name)
            if cost >= COST_OF_A_STEP:
                yield cost
                cost = 0
    matched_names = {}
    for regex, unsorted in topics.items():
        matched_names[regex] = yield from _sorted(unsorted)
    return matched_names


def _engines(regexes: Sequence[str]) -> Generator[int, None, list[tuple[_Matches, int]]]:
    """What matches all expressions, each with its size in instructions. Small expressions share an engine."""
    engines: list[tuple[_Matches, int]] = []
    together: list[str] = []
    size = 0
    for regex in regexes:
        try:
            instructions = _instructions(regex)
            if instructions > INSTRUCTIONS_TOGETHER_MAX:
                engines.append((_alone(regex), instructions))
        except ExpressionError:
            continue
        yield instructions // 2
        if instructions > INSTRUCTIONS_TOGETHER_MAX:
            continue
        if size + instructions > INSTRUCTIONS_TOGETHER_MAX:
            engines.append((_together(together), size))
            together, size = [], 0
            yield INSTRUCTIONS_TOGETHER_MAX // 2
        together.append(regex)
        size += instructions
    if together:
        engines.append((_together(together), size))
        yield size // 2
    return engines


def _instructions(regex: str) -> int:
    """The size of the compiled expression. One that is larger than a subscription may be counts as the largest."""
    try:
        size: int = compiled(regex, MEMORY_BYTES_MAX).programsize
    except ExpressionError:
        return INSTRUCTIONS_TOGETHER_MAX + 1
    return size


def _alone(regex: str) -> _Matches:
    """
    :raises ExpressionError: it can't be read here
    """
    try:
        fullmatch = compiled(regex, MEMORY_BYTES_MAX).fullmatch
    except ExpressionError:
        fullmatch = compiled(regex, SET_BYTES_MAX).fullmatch
    matched = (regex,)
    return lambda name: matched if fullmatch(name) else ()


def _together(regexes: list[str]) -> _Matches:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = SET_BYTES_MAX
    expressions = re2.Set.FullMatchSet(options)
    for regex in regexes:
        expressions.Add(regex)
    expressions.Compile()
    match = expressions.Match
    return lambda name: [regexes[nth] for nth in match(name) or ()]


def _sorted(names: list[str]) -> Generator[int, None, tuple[str, ...]]:
    if len(names) <= SORTED_AT_ONCE:
        return tuple(sorted(names))
    runs = []
    for start in range(0, len(names), SORTED_AT_ONCE):
        runs.append(sorted(names[start : start + SORTED_AT_ONCE]))
        yield SORTED_AT_ONCE // 2
    in_order = []
    for number, name in enumerate(merge(*runs), 1):
        in_order.append(name)
        if not number % SORTED_AT_ONCE:
            yield SORTED_AT_ONCE
    return tuple(in_order)
