"""Regular expressions of clients, in RE2's syntax, bounded by what it costs to compile one.

Kafka uses RE2/J, a Java port of RE2. The syntax is the same except for details: RE2/J has no ``\\C``, and it has no
bounds. The binding of RE2 gives the interpreter back while it matches, and holds it while it compiles. The bounds keep
that to some milliseconds. Memory alone doesn't bound it, because an expression is read before it takes any.

The engine is imported when the first expression is used.
"""

from __future__ import annotations

from typing import Any

CHARACTERS_MAX = 4_096
"""Length of an expression. 2,048 optional characters (``a?a?…``) take 8 ms, four times as many 270 ms."""
UNICODE_CLASSES_MAX = 8
"""Number of ``\\p`` and ``\\P`` in an expression. Each takes up to 0.4 ms."""


class ExpressionError(ValueError):
    """The expression can't be used; the message says why."""


def check_bounds(expression: str) -> None:
    """Check what makes an expression costly to read.

    :raises ExpressionError: it is larger than a bound
    """
    if len(expression) > CHARACTERS_MAX:
        raise ExpressionError(f"it has {len(expression)} characters; allowed: {CHARACTERS_MAX}")
    classes = expression.count("\\p") + expression.count("\\P")
    if classes > UNICODE_CLASSES_MAX:
        raise ExpressionError(f"it has {classes} classes \\p or \\P; allowed: {UNICODE_CLASSES_MAX}")


def compiled(expression: str, memory_bytes_max: int) -> Any:
    """Return the expression as RE2 has it, without groups to capture: thousands of them need gigabytes to match.

    :param memory_bytes_max: memory of the compiled expression. It bounds the time to match, too.
    :raises ExpressionError: it is none of RE2's syntax, or larger than a bound
    """
    check_bounds(expression)
    import re2

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = memory_bytes_max
    try:
        return re2.compile(expression, options)
    except re2.error as error:
        why = error.args[0]
        raise ExpressionError(why.decode(errors="replace") if isinstance(why, bytes) else str(why)) from error
