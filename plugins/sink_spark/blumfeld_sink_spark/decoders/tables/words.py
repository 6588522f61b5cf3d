"""Says in plain words what the parsers, Arrow's and Python's, found wrong with a message."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

_TYPES = {
    "array": "an array",
    "object": "an object",
    "string": "a text",
    "number": "a number",
    "boolean": "true or false",
    "number_or_string": "a number or a text",
    "null": "null",
}
_CAUSES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], bytes], str]], ...] = (
    (
        re.compile(r"Column\(/(?P<path>.+)\) changed from (?P<wanted>\w+) to (?P<found>\w+)"),
        lambda cause, message: (
            f"{_path(cause['path'])} is {_TYPES.get(cause['found'], cause['found'])} and must be "
            f"{_TYPES.get(cause['wanted'], cause['wanted'])}"
        ),
    ),
    (
        re.compile(r"Column\(/(?P<path>.+)\) was specified twice"),
        lambda cause, message: f"{_path(cause['path'])} is there twice",
    ),
    (
        re.compile(
            r"Failed to convert JSON to u?int\d+, couldn't parse:(?P<value>.*)"
            r"|Failed to parse string: '(?P<text>.*)' as a scalar of type u?int\d+"
        ),
        lambda cause, message: f"{_named(cause, message)} is no whole number that fits",
    ),
    (
        re.compile(
            r"The string '(?P<value>.*)' is not a valid decimal\d+ number|'(?P<text>.*)' is not a decimal number"
        ),
        lambda cause, message: f"{_named(cause, message)} is no decimal number",
    ),
    (
        re.compile(
            r"'(?P<value>.*)' does not fit decimal\d+\((?P<kind>\d+, \d+)\)"
            r"|The string '(?P<text>.*)' cannot be represented as decimal\d+"
        ),
        lambda cause, message: f"{_named(cause, message)} doesn't fit decimal({cause['kind'] or '38, 18'})",
    ),
)
_PLAIN = {
    "Rescaling Decimal value would cause data loss": "a number has more digits behind the point than the table keeps",
    "Decimal value does not fit in precision 38": "a number has more digits before the point than the table keeps",
    "Empty string cannot be converted to decimal128": "a number is an empty text",
    "The surrogate pair in string is invalid.": "a text has half a surrogate pair",
}


def plain(error: str, message: bytes) -> str:
    """Returns an error of Arrow's about one message in plain words, with the key that it is about where that can be
    told; an error of another kind without the place, which is ours alone to know.
    """
    error = error.removeprefix("JSON parse error: ").removesuffix(" in row 0")
    for pattern, words in _CAUSES:
        cause = pattern.fullmatch(error)
        if cause is not None:
            return words(cause, message)
    return _PLAIN.get(error, error)


def plain_json(error: json.JSONDecodeError) -> str:
    """Returns in plain words why a text is no JSON, with the place in characters."""
    text, at = error.doc, error.pos
    if at >= len(text):
        return f"no JSON: it is cut off after {len(text)} characters"
    if error.msg == "Extra data":
        return f"no JSON: it ends at {at} of {len(text)}, and {text[at : at + 20]!r} follows"
    if text.startswith("\ufeff"):
        return "no JSON: it begins with a byte order mark"
    return f"no JSON: {error.msg.removesuffix(' at')} at {at} of {len(text)}, where {text[at : at + 20]!r} is"


def _path(arrows: str) -> str:
    """Returns a path of Arrow's, ``data/[]/px``, as ``data[].px``."""
    return arrows.replace("/[]", "[]").replace("/", ".")


def _named(cause: re.Match[str], message: bytes) -> str:
    """Returns the value of a cause after the key that has it, where one key alone does."""
    value = cause["value"] or cause["text"] or ""
    there = re.escape(value.encode())
    keys = set(re.findall(rb'"(\w{1,40})"\s*:[\s\[]*"?' + there + rb'"?\s*[,\]}]', message))
    return f"{keys.pop().decode()} {value[:60]!r}" if len(keys) == 1 else repr(value[:60])
