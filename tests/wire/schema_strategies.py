"""Messages for tests, made from the schema alone: strategies for hypothesis, and a full one without chance."""

from __future__ import annotations

from functools import cache
from itertools import count
from typing import Any

from hypothesis import strategies as st

from blumfeld.wire.api import message_class, message_names
from blumfeld.wire.schema import AnyStruct, Field, Message, fields_of

_BOUNDS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}


def every_version() -> list[tuple[type[Message], int]]:
    """Each message with each of its valid versions."""
    return [
        (cls, version)
        for cls in map(message_class, message_names())
        for version in range(cls.meta.valid.first, cls.meta.valid.last + 1)
    ]


@cache
def messages(cls: type[AnyStruct], version: int) -> st.SearchStrategy[Any]:
    """Messages (or structs) of this class whose values are all known to this version."""
    return st.builds(cls, **{f.name: _field(f, version) for f in fields_of(cls) if version in f.versions})


def _field(field: Field, version: int) -> st.SearchStrategy[Any]:
    strategy = _value(field, version)
    if field.type.array:
        strategy = st.lists(strategy, max_size=2)
    return st.none() | strategy if version in field.nullable else strategy


def _value(field: Field, version: int) -> st.SearchStrategy[Any]:
    kind = field.type.kind
    if field.type.struct is not None:
        return messages(field.type.struct, version)
    if kind in _BOUNDS:
        return st.integers(*_BOUNDS[kind])
    simple: dict[str, st.SearchStrategy[Any]] = {
        "bool": st.booleans(),
        "float64": st.floats(allow_nan=False),
        "uuid": st.binary(min_size=16, max_size=16),
        "string": st.text(max_size=5) | st.just("long" * 40),
        "bytes": st.binary(max_size=5),
        "records": st.binary(max_size=5).map(memoryview),
    }
    return simple[kind]


def full(cls: type[AnyStruct], version: int) -> Any:
    """A message in which no field of this version has its default, and no two values are the same."""
    return _full(cls, version, count(1))


def _full(cls: type[AnyStruct], version: int, numbers: count[int]) -> Any:
    return cls(**{f.name: _full_field(f, version, numbers) for f in fields_of(cls) if version in f.versions})


def _full_field(field: Field, version: int, numbers: count[int]) -> Any:
    if field.type.array:
        return [_full_value(field, version, numbers) for _ in range(2)]
    return _full_value(field, version, numbers)


def _full_value(field: Field, version: int, numbers: count[int]) -> Any:
    kind = field.type.kind
    if field.type.struct is not None:
        return _full(field.type.struct, version, numbers)
    number = next(numbers)
    if kind in _BOUNDS:
        return min(number + 2, _BOUNDS[kind][1])
    values: dict[str, Any] = {
        "bool": field.default is False,
        "float64": number + 0.5,
        "uuid": number.to_bytes(16, "big"),
        "string": f"text-{number}-é",
        "bytes": f"bytes-{number}".encode(),
        "records": memoryview(f"records-{number}".encode()),
    }
    return values[kind]
