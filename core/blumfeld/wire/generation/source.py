"""Source of the codec for one class and version: the code that a person would write if there weren't 273
messages.

All structs of a message become one function. Adjacent fixed-size fields, and the length after them, are
read or packed in one call of a precompiled ``struct.Struct``. ``names`` holds the objects that the source
uses (packers, classes, defaults); :mod:`blumfeld.wire.codec` compiles it.
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
"""Elements that a codec in steps handles between two yields: 30 to 60 µs."""
STEP_NUMBERS = 512
"""The same for numbers, which are read in blocks."""
STEP_PIECES = 4_096
"""Pieces that are joined at a yield. Without this the join at the end would take as long as all the rest."""
StructClass = type[Message] | type[WireStruct]


class Source:
    """The source under construction: indentation, fresh names, and the objects that its lines use."""

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
        """Add a line at the current depth."""
        self.lines.append("    " * self.depth + text)

    def begin_steps(self) -> None:
        """Write the counter of elements left until the next yield, and a yield that makes even a function
        without an array a generator.
        """
        if self.in_steps:
            self.line(f"left = {STEP_ELEMENTS}")
            self.line("if left < 0: yield")

    def count_step(self, before_yield: str = "") -> None:
        """Write, at the top of a loop over elements, the yield after enough elements."""
        if self.in_steps:
            self.line("left -= 1")
            self.line("if left < 0:")
            if before_yield:
                self.line(f"    {before_yield}")
            self.line("    yield")
            self.line(f"    left = {STEP_ELEMENTS}")

    def fresh(self, stem: str) -> str:
        """Returns a local name that is not used yet."""
        self._count += 1
        return f"{stem}_{self._count}"

    def constant(self, stem: str, value: Any) -> str:
        """Returns a name under which the source sees ``value``."""
        name = self.fresh(stem.upper())
        self.names[name] = value
        return name

    def packer(self, formats: str, method: str) -> tuple[str, int]:
        """Returns the name of a bound method of the big-endian packer for ``formats``, and the packed size."""
        packer = Packer(">" + formats)
        key = f"{method}_{formats.replace('?', 'o')}"
        if key not in self._packers:
            self._packers[key] = f"{method}_{len(self._packers)}"
            self.names[self._packers[key]] = getattr(packer, method)
        return self._packers[key], packer.size

    def packers_by_shape(self, layout: tuple[str, ...]) -> str:
        """Returns the name of the packers for a run with arrays in it, by their counts."""
        if layout not in self._layouts:
            self._layouts[layout] = self.constant("packers", PackersByShape(layout))
        return self._layouts[layout]

    def unpackers_by_count(self, element: str, compact: bool) -> str:
        """Returns the name of the unpackers for short arrays of this format, by the count on the wire."""
        name = f"{'compact' if compact else 'classic'}_array_{element.replace('?', 'o')}"
        self.names.setdefault(name, UnpackersByCount(element, compact))
        return name

    def is_flexible(self, field: Field) -> bool:
        """Whether the field has the compact form."""
        return self.flexible and not field.never_flexible

    def tagged(self, fields: tuple[Field, ...]) -> list[Field]:
        """Returns the fields that are in the tag section in this version, by tag."""
        return sorted((f for f in fields if self.flexible and self.version in f.tagged), key=lambda f: f.tag)

    def plain(self, fields: tuple[Field, ...]) -> list[Field]:
        """Returns the fields that are inline in this version."""
        return [
            f
            for f in fields
            if self.version in f.versions and not (self.flexible and self.version in f.tagged)
        ]

    def text(self, signature: str) -> str:
        """Returns the whole function."""
        return "\n".join([signature, *self.lines, ""])


def min_size(cls: StructClass, version: int, flexible: bool) -> int:
    """Returns the minimum size of a struct in this version, in bytes; 1 for an empty one, so that it can bound
    a count.
    """
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
    """Returns the minimum size of one element of an array, in bytes."""
    kind, _, struct = field.type
    if struct is not None:
        return min_size(struct, version, flexible)
    if kind in FIXED_FORMATS:
        return Packer(">" + FIXED_FORMATS[kind]).size
    return 1 if flexible else 2 if kind == "string" else 4
