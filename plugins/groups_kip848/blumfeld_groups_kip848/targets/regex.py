"""Regular expressions of subscriptions: RE2, as KIP-848 asks. A topic is meant if the whole of its name matches.

Kafka's server has RE2/J, a port of RE2 to Java: one syntax, but for small print (RE2/J has no ``\\C``; RE2 limits
the memory of an expression, and refuses what would need more). The engine is loaded when the first expression is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from blumfeld.wire.errors import BrokerError, ErrorCode


def check(regex: str) -> None:
    """Does nothing for an expression that can be used.

    :raises BrokerError: INVALID_REGULAR_EXPRESSION
    """
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(regex, options)
    except re2.error as error:
        why = error.args[0].decode() if isinstance(error.args[0], bytes) else error.args[0]
        message = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {why}."
        raise BrokerError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from error


def matching(regexes: Sequence[str], names: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """The names, sorted, that each expression stands for; all expressions in one pass.

    One that this engine can't read stands for none: another broker's may have let it into the log.
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
        expressions.Compile()
        for name in names:
            for nth in expressions.Match(name) or ():
                found[readable[nth]].append(name)
    return {regex: tuple(sorted(matched)) for regex, matched in found.items()}
