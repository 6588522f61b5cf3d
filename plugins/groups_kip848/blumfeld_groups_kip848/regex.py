"""Regular expressions of subscriptions: RE2, as KIP-848 asks.

Kafka's server has RE2/J, a port of RE2 to Java: one syntax, but for small print (RE2/J has no ``\\C``; RE2 limits
the memory of an expression, and refuses what would need more).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from blumfeld.wire.errors import BrokerError, ErrorCode

Matches = Callable[[str], Any]
"""Truthy if the whole of a topic's name matches."""


def compiled(regex: str) -> Matches:
    """A matcher. The engine is loaded when the first expression is.

    :raises BrokerError: INVALID_REGULAR_EXPRESSION
    """
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        matches: Matches = re2.compile(regex, options).fullmatch
    except re2.error as error:
        why = error.args[0].decode() if isinstance(error.args[0], bytes) else error.args[0]
        message = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {why}."
        raise BrokerError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from error
    return matches


def check(regex: str) -> None:
    """Does nothing for an expression that can be used.

    :raises BrokerError: INVALID_REGULAR_EXPRESSION
    """
    compiled(regex)
