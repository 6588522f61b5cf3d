"""The errors of an answer whose shape isn't known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from blumfeld.wire.schema import Message, Struct, fields_of

ITEMS_MAX = 1000


class _Places(NamedTuple):
    """The fields of one class that lead to error codes."""

    has_code: bool
    lists: tuple[str, ...]
    structs: tuple[str, ...]


_NOWHERE = _Places(False, (), ())
_PLACES: dict[type, _Places] = {}
_MESSAGES = "blumfeld.wire.messages."


def first_error(answer: object) -> int:
    """Returns the first ``error_code`` that isn't 0: the answer's own, else one of its items'; 0 if there is none.

    It looks at ``ITEMS_MAX`` items at most, so that a large answer doesn't hold the loop.
    """
    return next(errors_in(answer), 0)


def errors_in(answer: object) -> Iterator[int]:
    """Yields each ``error_code`` that isn't 0: the answer's own, and those of its topics, partitions, groups and other
    items, of ``ITEMS_MAX`` items at most. Lists without error codes aren't walked.
    """
    left = ITEMS_MAX
    waiting: list[Any] = [answer]
    while waiting and left > 0:
        # Depth first: see the first topic's partitions before the limit is used up by topics.
        item = waiting.pop()
        left -= 1
        kind = type(item)
        places = _PLACES.get(kind) or _places_of(kind)
        if places.has_code and item.error_code:
            yield int(item.error_code)
        for name in places.lists:
            items = getattr(item, name)
            if items:
                waiting += reversed(items[:left])
        for name in places.structs:
            # Last: a single struct, such as a diverging epoch, seldom has one.
            waiting.insert(0, getattr(item, name))


def _places_of(kind: type) -> _Places:
    places = _PLACES[kind] = _looked_up(kind)
    return places


def _looked_up(kind: type) -> _Places:
    # A class of ours that extends a message's, such as a partition's answer that waits, has the places of the message.
    generated = next((base for base in kind.__mro__ if base.__module__.startswith(_MESSAGES)), None)
    if generated is None or not issubclass(generated, (Message, Struct)):
        return _NOWHERE
    fields = fields_of(generated)
    inner = [
        field for field in fields if field.type.struct is not None and _leads_somewhere(field.type.struct)
    ]
    return _Places(
        any(field.name == "error_code" for field in fields),
        tuple(field.name for field in inner if field.type.array),
        tuple(field.name for field in inner if not field.type.array),
    )


def _leads_somewhere(kind: type[Struct]) -> bool:
    places = _looked_up(kind)
    return places.has_code or bool(places.lists or places.structs)
