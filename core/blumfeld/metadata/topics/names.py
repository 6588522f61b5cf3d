"""Rules for topic names (Kafka's ``Topic``). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from blumfeld.wire.errors import BrokerError, ErrorCode

NAME_CHARACTERS_MAX = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Check a topic's name.

    :raises BrokerError: INVALID_TOPIC_EXCEPTION; the message says what is wrong
    """
    problem = None
    if not name:
        problem = "the empty string is not allowed"
    elif name in (".", ".."):
        problem = f"'{name}' is not allowed"
    elif len(name) > NAME_CHARACTERS_MAX:
        problem = f"the length of '{name}' is longer than the max allowed length {NAME_CHARACTERS_MAX}"
    elif _LEGAL.fullmatch(name) is None:
        problem = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if problem is not None:
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def colliding_topic(name: str, others: Iterable[str]) -> str | None:
    """Returns the topic whose metric names ``name`` would share ('.' and '_' are the same there), or ``None``."""
    if "." not in name and "_" not in name:
        return None
    unified = name.replace(".", "_")
    return next((other for other in others if other != name and other.replace(".", "_") == unified), None)
