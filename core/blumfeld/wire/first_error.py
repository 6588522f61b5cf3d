"""The error of an answer whose shape isn't known."""

from __future__ import annotations

from typing import Any

import msgspec

ITEMS_MAX = 1000


def first_error(answer: object) -> int:
    """Returns the first ``error_code`` that isn't 0: the answer's own, else one of its items'; 0 if there is none.

    It looks at ``ITEMS_MAX`` items at most, so that a large answer doesn't hold the loop.
    """
    left = ITEMS_MAX
    waiting: list[Any] = [answer]
    while waiting and left > 0:
        # Depth first: see the first topic's partitions before the limit is used up by topics.
        item = waiting.pop()
        left -= 1
        code = getattr(item, "error_code", 0)
        if code:
            return int(code)
        if isinstance(item, msgspec.Struct):
            for name in type(item).__struct_fields__:
                value = getattr(item, name)
                if isinstance(value, list) and value and isinstance(value[0], msgspec.Struct):
                    waiting += reversed(value[:left])
                elif isinstance(value, msgspec.Struct):
                    # Last: a single struct, such as a diverging epoch, seldom has one.
                    waiting.insert(0, value)
    return 0
