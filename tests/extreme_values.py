"""Requests whose fields have extreme values, made from the schema: what a hostile client can send in one version.

Each field is drawn from its ordinary values, which the test names, or from the extremes of its wire type. So most
requests get past the first checks, and each check meets values at its bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from blumfeld.wire.schema import Field, Message, Struct, fields_of

STRING_MAX = "x" * 32_767
"""The longest string that the protocol has."""
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_UNSIGNED_BITS = {"uint16": 16, "uint32": 32}

Ordinary = Mapping[str, Sequence[Any]]
"""Field name → values that an ordinary client sends."""


def extremes_of(kind: str) -> list[Any]:
    """The values of a wire type at which code breaks."""
    if kind in _BITS:
        top = 1 << (_BITS[kind] - 1)
        return [-top, -top + 1, -2, -1, 0, 1, 2, top - 2, top - 1]
    if kind in _UNSIGNED_BITS:
        return [0, 1, (1 << _UNSIGNED_BITS[kind]) - 1]
    if kind == "bool":
        return [False, True]
    if kind == "float64":
        return [0.0, -1.0, float("nan"), float("inf"), float("-inf"), 1.7e308]
    if kind == "uuid":
        return [bytes(16), bytes(15) + b"\1", bytes(15) + b"\2", b"\xff" * 16]
    if kind == "string":
        return ["", " ", "\0", "é", "\U0001f600", ".", "..", "(", "a,b", "__consumer_offsets", STRING_MAX]
    return [b"", b"\0", b"\0\0", b"\xff" * 4, b"\0\3" + b"\x7f" * 30, bytes(100_000)]


def requests(cls: type[Message], version: int, ordinary: Ordinary) -> st.SearchStrategy[Any]:
    """Requests of a class as they can come in ``version``: fields that it lacks have their default."""
    return _structs(cls, version, ordinary)


def _structs(cls: type[Any], version: int, ordinary: Ordinary) -> st.SearchStrategy[Any]:
    fields = {
        field.name: _values(field, version, ordinary)
        for field in fields_of(cls)
        if version in field.versions or version in field.tagged
    }
    return st.builds(cls, **fields)


def _values(field: Field, version: int, ordinary: Ordinary) -> st.SearchStrategy[Any]:
    struct: type[Struct] | None = field.type.struct
    if struct is not None:
        strategy: st.SearchStrategy[Any] = _structs(struct, version, ordinary)
    else:
        usual = ordinary.get(field.name, ())
        strategy = st.sampled_from(extremes_of(field.type.kind))
        if usual:
            strategy = st.one_of(st.sampled_from(list(usual)), st.sampled_from(list(usual)), strategy)
    if field.type.array:
        strategy = st.one_of(
            st.lists(strategy, max_size=2),
            strategy.map(lambda item: [item]),
            strategy.map(lambda item: [item, item]),
        )
    return st.one_of(st.none(), strategy) if version in field.nullable else strategy


def one_at_a_time(cls: type[Message], version: int, ordinary: Ordinary) -> Iterator[Any]:
    """The ordinary request, then one for each extreme value of each field, all other fields being ordinary."""
    usual = usual_request(cls, version, ordinary)
    yield usual
    yield from varied(usual, version)


def usual_request(cls: type[Any], version: int, ordinary: Ordinary) -> Any:
    """The ordinary request of a class in ``version``."""
    values = {}
    for field in fields_of(cls):
        if version not in field.versions and version not in field.tagged:
            continue
        if field.type.struct is not None:
            element = usual_request(field.type.struct, version, ordinary)
        else:
            element = next(
                iter(ordinary.get(field.name, ())), field.default if not field.type.array else None
            )
        if field.type.array:
            values[field.name] = [] if element is None else [element]
        elif element is not None or version in field.nullable:
            values[field.name] = element
    return cls(**values)


def varied(struct: Any, version: int) -> Iterator[Any]:
    """A request or a part of one with one field changed: for each extreme value of each field, and for a number's
    neighbours.
    """
    for field in fields_of(type(struct)):
        if version not in field.versions and version not in field.tagged:
            continue
        value = getattr(struct, field.name)
        for other in _others(field, value, version):
            yield replace(struct, **{field.name: other})


def _others(field: Field, value: Any, version: int) -> Iterator[Any]:
    if version in field.nullable:
        yield None
    if field.type.struct is None:
        extremes = extremes_of(field.type.kind)
        if field.type.array:
            yield from ([extreme] for extreme in extremes)
        else:
            yield from extremes
            yield from _neighbours(field.type.kind, value, extremes)
    elif isinstance(value, list):
        for at, element in enumerate(value):
            yield from ([*value[:at], other, *value[at + 1 :]] for other in varied(element, version))
    elif value is not None:
        yield from varied(value, version)
    if field.type.array:
        yield []
        if value:
            yield [value[0], value[0]]


def _neighbours(kind: str, value: Any, extremes: Sequence[int]) -> Iterator[int]:
    if kind in _BITS or kind in _UNSIGNED_BITS:
        near = (value - 1, value + 1)
        yield from (
            candidate
            for candidate in near
            if min(extremes) <= candidate <= max(extremes) and candidate not in extremes
        )
