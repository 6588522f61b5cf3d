"""The schema language: one class a message for all versions, fields that know their versions.

A message is a :class:`Message`, the structs within it are :class:`Struct`. Each field is annotated with
what it is on the wire::

    class HeartbeatRequest(Message):
        meta: ClassVar[Api] = Api("HeartbeatRequest", 12, "request", valid="0-4", flexible="4+")

        group_id: Annotated[str, Wire("string")] = ""
        group_instance_id: Annotated[str | None, Wire("string", versions="3+", nullable="3+")] = None

Names are Kafka's in snake case. Every field has Kafka's default, so ``HeartbeatRequest()`` works. The
objects are mutable, compare by value and are not tracked by the garbage collector.

A module of messages does not postpone its annotations (no ``from __future__``): they are read here, and text
would have to be compiled again at each start.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, NamedTuple, TypeAlias, get_args, get_origin

import msgspec

NEVER: Final = 32767
"""As a first version: no version at all. As a last version: no end."""

FIXED_FORMATS: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""Wire types of a fixed size → their format character in :mod:`struct`."""
VARIABLE_TYPES: Final = ("string", "bytes", "records", "struct")


class Versions(NamedTuple):
    """A closed range of versions; empty if ``first`` is above ``last``."""

    first: int
    last: int

    @classmethod
    def of(cls, text: str) -> Versions:
        """Parse Kafka's notation: ``3``, ``0-4``, ``3+`` or ``none``."""
        if text == "none":
            return cls(NEVER, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), NEVER)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def __str__(self) -> str:
        if self.first > self.last:
            return "none"
        if self.last == NEVER:
            return f"{self.first}+"
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


class Wire:
    """The form of a field on the wire; see the module's docstring.

    ``kind`` is one of Kafka's types (``int32``, ``string``, ``[]uuid``…), ``struct`` or ``[]struct``; the
    annotation names the struct. ``flexible="none"`` keeps the classic form in a flexible message. ``name``
    is Kafka's name in the JSON form if it isn't the field's name in camel case.
    """

    __slots__ = ("flexible", "ignorable", "kind", "name", "nullable", "tag", "tagged", "versions")

    def __init__(
        self,
        kind: str,
        *,
        versions: str = "0+",
        nullable: str = "none",
        tag: int | None = None,
        tagged: str = "none",
        ignorable: bool = False,
        flexible: str | None = None,
        name: str | None = None,
    ) -> None:
        self.kind = kind
        self.versions = versions
        self.nullable = nullable
        self.tag = tag
        self.tagged = tagged
        self.ignorable = ignorable
        self.flexible = flexible
        self.name = name


class Api:
    """Identity of a message: its key (of an API or a record type), kind and versions.

    ``kind`` is ``request``, ``response``, ``header``, ``data``, ``metadata``, ``coordinator-key`` or
    ``coordinator-value``.
    """

    __slots__ = ("flexible", "key", "kind", "name", "valid")

    def __init__(self, name: str, key: int | None, kind: str, *, valid: str, flexible: str) -> None:
        self.name = name
        self.key = key
        self.kind = kind
        self.valid = Versions.of(valid)
        self.flexible = Versions.of(flexible)


class Struct(msgspec.Struct, kw_only=True, gc=False):
    """A struct within a message. It has no versions of its own: the message's version decides its form."""


class Message(msgspec.Struct, kw_only=True, gc=False):
    """A message of the protocol, for all its versions."""

    meta: ClassVar[Api]


class FieldType(NamedTuple):
    """A resolved type: ``kind`` without ``[]``, whether it is an array, and the struct's class."""

    kind: str
    array: bool
    struct: type[Struct] | None


class Field(NamedTuple):
    """A field with its versions resolved, as both codecs use it."""

    name: str
    json_name: str
    type: FieldType
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    ignorable: bool
    never_flexible: bool
    default: Any
    """The default for int, bool, float, str, bytes, uuid and null. Lists and structs get a fresh one from
    :func:`default_of`.
    """

    def default_of(self) -> Any:
        """Returns Kafka's default, fresh if it is mutable."""
        return self.default() if isinstance(self.default, type) else self.default


_FIELDS: dict[type, tuple[Field, ...]] = {}


def fields_of(cls: type[Message] | type[Struct]) -> tuple[Field, ...]:
    """Returns the fields of a class in wire order; resolved once."""
    fields = _FIELDS.get(cls)
    if fields is None:
        fields = _FIELDS[cls] = tuple(_resolve(cls))
    return fields


def _resolve(cls: type[Message] | type[Struct]) -> list[Field]:
    resolved = []
    example = cls()
    for name in cls.__struct_fields__:
        annotation = cls.__annotations__[name]
        wire: Wire = annotation.__metadata__[0]
        kind = wire.kind.removeprefix("[]")
        default = getattr(example, name)
        resolved.append(
            Field(
                name=name,
                json_name=wire.name or camel_case(name),
                type=FieldType(
                    kind,
                    wire.kind.startswith("[]"),
                    _struct_class(annotation.__origin__) if kind == "struct" else None,
                ),
                versions=Versions.of(wire.versions),
                nullable=Versions.of(wire.nullable),
                tagged=Versions.of(wire.tagged),
                tag=-1 if wire.tag is None else wire.tag,
                ignorable=wire.ignorable,
                never_flexible=wire.flexible == "none",
                default=type(default) if isinstance(default, (list, Struct)) else default,
            )
        )
    return resolved


def _struct_class(annotation: Any) -> type[Struct]:
    """Returns the struct in ``X``, ``X | None``, ``list[X]`` or ``list[X] | None``."""
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and get_origin(candidate) is None and issubclass(candidate, Struct):
            return candidate
        if get_origin(candidate) is list:
            return _struct_class(get_args(candidate)[0])
    raise TypeError(f"{annotation!r} holds no Struct")


def camel_case(name: str) -> str:
    """Returns the name in camel case: ``throttle_time_ms`` becomes ``throttleTimeMs``."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


AnyStruct: TypeAlias = Message | Struct
