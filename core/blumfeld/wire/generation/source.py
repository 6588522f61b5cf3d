"""Source of the codec for one class and version: what a person would write if there weren't 273 messages.

All structs of a message are written into one function. Fields of a fixed size that follow each other,
and the length that comes after them, are read or packed in one call of a precompiled ``struct.Struct``.
What the source uses (packers, classes, defaults) is in ``names``; :mod:`blumfeld.wire.codec` compiles it.
"""

from __future__ import annotations

from struct import Struct as Packer
from typing import Any

from blumfeld.wire import primitives
from blumfeld.wire.generation.shapes import PackersByShape, UnpackersByCount
from blumfeld.wire.schema import FIXED_FORMATS, Field, Message, fields_of
from blumfeld.wire.schema import Struct as WireStruct

SHARED_NAMES: dict[str, Any] = {
    "DecodeError": primitives.DecodeError,
    "EncodeError": primitives.EncodeError,
    "ARRAY_LENGTH_MAX": primitives.ARRAY_LENGTH_MAX,
    "TAGS_MAX": primitives.TAGS_MAX,
    "uvarint": primitives.uvarint,
    "put_uvarint": primitives.put_uvarint,
    "skip_tags": primitives.skip_tags,
    "put_records": primitives.put_records,
    "records_size": primitives.records_size,
}
STEP_ELEMENTS = 64
"""Elements that a codec in steps reads or writes between two yields: 30 to 60 µs."""
STEP_NUMBERS = 512
"""The same for numbers, which are read a block at a time."""
STEP_PIECES = 4_096
"""Written pieces that are joined at a yield, so that no join at the end takes as long as all the rest."""
StructClass = type[Message] | type[WireStruct]


class Source:
    """Lines at an indentation, fresh names, and the objects that the lines refer to."""

    def __init__(self, cls: StructClass, version: int, flexible: bool, in_steps: bool = False) -> None:
        self.cls = cls
        self.in_steps = in_steps
        """Whether the function is a generator."""
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.names: dict[str, Any] = dict(SHARED_NAMES)
        self.depth = 1
        self._count = 0
        self._packers: dict[str, str] = {}
        self._layouts: dict[tuple[str, ...], str] = {}

    def line(self, text: str) -> None:
        """One line at the current depth."""
        self.lines.append("    " * self.depth + text)

    def begin_steps(self) -> None:
        """Before the first element: how many are left to the next yield. A function without an array is a generator
        all the same.
        """
        if self.in_steps:
            self.line(f"left = {STEP_ELEMENTS}")
            self.line("if left < 0: yield")

    def count_step(self, before_yield: str = "") -> None:
        """At the top of a loop over elements: yield if enough were read or written since the last yield."""
        if self.in_steps:
            self.line("left -= 1")
            self.line("if left < 0:")
            if before_yield:
                self.line(f"    {before_yield}")
            self.line("    yield")
            self.line(f"    left = {STEP_ELEMENTS}")

    def fresh(self, stem: str) -> str:
        """A local name that nothing else has."""
        self._count += 1
        return f"{stem}_{self._count}"

    def constant(self, stem: str, value: Any) -> str:
        """A name under which the source sees ``value``."""
        name = self.fresh(stem.upper())
        self.names[name] = value
        return name

    def packer(self, formats: str, method: str) -> tuple[str, int]:
        """The name of a bound method of the big-endian packer for ``formats``, and the size it packs."""
        packer = Packer(">" + formats)
        key = f"{method}_{formats.replace('?', 'o')}"
        if key not in self._packers:
            self._packers[key] = f"{method}_{len(self._packers)}"
            self.names[self._packers[key]] = getattr(packer, method)
        return self._packers[key], packer.size

    def packers_by_shape(self, layout: tuple[str, ...]) -> str:
        """The name of the packers of a run with arrays in it, by the counts of these."""
        if layout not in self._layouts:
            self._layouts[layout] = self.constant("packers", PackersByShape(layout))
        return self._layouts[layout]

    def unpackers_by_count(self, element: str, compact: bool) -> str:
        """The name of the unpackers of short arrays of this format, by the count on the wire."""
        name = f"{'compact' if compact else 'classic'}_array_{element.replace('?', 'o')}"
        self.names.setdefault(name, UnpackersByCount(element, compact))
        return name

    def is_flexible(self, field: Field) -> bool:
        """Whether the field stands in compact form."""
        return self.flexible and not field.never_flexible

    def tagged(self, fields: tuple[Field, ...]) -> list[Field]:
        """The fields that are in the tag section in this version, in the order of their tags."""
        return sorted((f for f in fields if self.flexible and self.version in f.tagged), key=lambda f: f.tag)

    def plain(self, fields: tuple[Field, ...]) -> list[Field]:
        """The fields that stand in line in this version."""
        return [
            f
            for f in fields
            if self.version in f.versions and not (self.flexible and self.version in f.tagged)
        ]

    def text(self, signature: str) -> str:
        """The whole function."""
        return "\n".join([signature, *self.lines, ""])


def min_size(cls: StructClass, version: int, flexible: bool) -> int:
    """The fewest bytes that a struct takes in this version; 1 where it takes none, so that it bounds a count."""
    size = 1 if flexible else 0
    for field in fields_of(cls):
        if version not in field.versions or (flexible and version in field.tagged):
            continue
        kind, array, struct = field.type
        compact = flexible and not field.never_flexible
        if array:
            size += 1 if compact else 4
        elif kind == "struct":
            assert struct is not None
            size += 1 if version in field.nullable else min_size(struct, version, flexible)
        elif kind in FIXED_FORMATS:
            size += Packer(">" + FIXED_FORMATS[kind]).size
        else:
            size += 1 if compact else 2 if kind == "string" else 4
    return max(size, 1)


def element_min_size(field: Field, version: int, flexible: bool) -> int:
    """The fewest bytes of one element of an array."""
    kind, _, struct = field.type
    if struct is not None:
        return min_size(struct, version, flexible)
    if kind in FIXED_FORMATS:
        return Packer(">" + FIXED_FORMATS[kind]).size
    return 1 if flexible else 2 if kind == "string" else 4
