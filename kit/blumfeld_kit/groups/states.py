"""The whole state of a shard as plain values, so that two states can be compared and their difference printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import attrs
import msgspec

PLAIN = (str, bytes, int, float, bool, type(None))


def state_of(
    value: Any,
    ignore: frozenset[str] = frozenset(),
    *,
    without: Sequence[Any] = (),
    ordered: bool = True,
) -> Any:
    """Return everything that the value holds as dictionaries, lists and atoms.

    Attributes named in ``ignore``, objects in ``without`` and functions are left out. If ``ordered``, the order of a
    dictionary is part of the state.
    """
    return _State(ignore, [id(item) for item in without], ordered).of(value)


class _State:
    def __init__(self, ignore: frozenset[str], without: list[int], ordered: bool) -> None:
        self._ignore = ignore
        self._without = without
        self._inside: list[int] = []
        self._ordered = ordered

    def of(self, value: Any) -> Any:
        if isinstance(value, Enum):
            return value.name
        if isinstance(value, PLAIN):
            return value
        if isinstance(value, Mapping):
            pairs = [(self.of(key), self.of(item)) for key, item in value.items()]
            return pairs if self._ordered else sorted(pairs, key=lambda pair: repr(pair[0]))
        if isinstance(value, list | tuple):
            return [self.of(item) for item in value]
        if isinstance(value, set | frozenset):
            return sorted((self.of(item) for item in value), key=repr)
        return self._of_object(value)

    def _of_object(self, value: Any) -> Any:
        self._inside.append(id(value))
        fields = {
            name: self.of(item)
            for name, item in fields_of(value)
            if name not in self._ignore
            and not callable(item)
            and id(item) not in self._without
            and id(item) not in self._inside
        }
        self._inside.pop()
        return fields


def fields_of(value: Any) -> list[tuple[str, Any]]:
    """Return the attributes of an object: attrs, msgspec, slots or ``__dict__``."""
    if attrs.has(type(value)):
        return [(field.name, getattr(value, field.name)) for field in attrs.fields(type(value))]
    if isinstance(value, msgspec.Struct):
        return [(name, getattr(value, name)) for name in value.__struct_fields__]
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    fields = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return sorted({**fields, **getattr(value, "__dict__", {})}.items())


def difference(first: Any, other: Any, path: str = "") -> str:
    """Return the first difference of two states as text, or ""."""
    if first == other:
        return ""
    if isinstance(first, dict) and isinstance(other, dict):
        for name in [*first, *(name for name in other if name not in first)]:
            mismatch = difference(first.get(name), other.get(name), f"{path}.{name}")
            if mismatch:
                return mismatch
    if isinstance(first, list) and isinstance(other, list) and len(first) == len(other):
        for n, (left, right) in enumerate(zip(first, other, strict=True)):
            named = isinstance(left, tuple) and isinstance(right, tuple) and left[0] == right[0]
            mismatch = (
                difference(left[1], right[1], f"{path}[{left[0]!r}]")
                if named
                else difference(left, right, f"{path}[{n}]")
            )
            if mismatch:
                return mismatch
    return f"{path}: {first!r} != {other!r}"
