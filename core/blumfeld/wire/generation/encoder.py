"""Source of an encoder: ``encode(message, out, parts)``.

The encoder appends bytes to ``out``. A large ``records`` value closes ``out`` into ``parts`` and follows as
parts of its own (:func:`blumfeld.wire.primitives.put_records`). The encoder checks what ``struct`` does
not;
:mod:`blumfeld.wire.codec` turns its exceptions into :class:`~blumfeld.wire.primitives.EncodeError`.
"""

from __future__ import annotations

import struct
from typing import Any

from blumfeld.wire.generation.source import STEP_PIECES, Source, StructClass
from blumfeld.wire.primitives import SMALL_PART_BYTES
from blumfeld.wire.schema import FIXED_FORMATS, Field, FieldType, fields_of

ONE_BYTE = tuple(bytes((i,)) for i in range(128))


def encoder_source(cls: StructClass, version: int, flexible: bool, in_steps: bool = False) -> Source:
    """Returns the source of the encoder; its function is called ``encode``.

    With ``in_steps`` it is a generator that yields after each ``STEP_ELEMENTS`` elements. It joins its
    output as it goes, so there are more parts, with the same bytes.
    """
    source = Source(cls, version, flexible, in_steps)
    source.names["ONE_BYTE"] = ONE_BYTE
    source.line("append = out.append")
    source.begin_steps()
    writer = _Writer(source)
    writer.struct(cls, "message")
    writer.flush()
    return source


class _Writer:
    """Writes packs into the source. ``run`` collects adjacent fixed-size values that are not written yet."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.run: list[tuple[str, str]] = []
        """Format and value. An array has the format ``B*i``, and its count and elements with a ``*`` between them."""
        self.append = "append"

    def flush(self) -> None:
        """Write the collected run as one call."""
        if self.run:
            self.source.line(f"{self.append}({self.packed(self.run)})")
            self.run = []

    def packed(self, run: list[tuple[str, str]]) -> str:
        """Returns the expression that packs these values."""
        values = [v for _, v in run if v]
        formats = "".join(f for f, _ in run)
        if not values:
            return repr(bytes(struct.calcsize(">" + formats)))
        if counts := [v.partition(", *")[0] for f, v in run if "*" in f]:
            name = self.source.packers_by_shape(tuple(f for f, _ in run))
            return f"{name}[{', '.join(counts)}]({', '.join(values)})"
        name, _ = self.source.packer(formats, "pack")
        return f"{name}({', '.join(values)})"

    def flush_with_length(self, length: str, limit: str = "") -> None:
        """Write the collected run and the compact length after it, in one call if the length takes one byte."""
        source = self.source
        short = self.packed([*self.run, ("B", length)]) if self.run else f"ONE_BYTE[{length}]"
        source.line(f"if {length} < 128:")
        source.line(f"    {self.append}({short})")
        source.line("else:")
        if limit:
            source.line(f"    {limit}")
        if self.run:
            source.line(f"    {self.append}({self.packed(self.run)})")
        source.line(f"    {self.append}(put_uvarint({length}))")
        self.run = []

    def flush_with_long_length(self, length: str) -> None:
        """As :meth:`flush_with_length`, for lengths that are seldom short: one call for two bytes too."""
        source = self.source
        halves = [*self.run, ("B", f"{length} & 127 | 128"), ("B", f"{length} >> 7")]
        source.line(f"if 128 <= {length} < 16384:")
        source.line(f"    {self.append}({self.packed(halves)})")
        source.line("else:")
        source.depth += 1
        self.flush_with_length(length)
        source.depth -= 1

    def struct(self, cls: StructClass, value: str) -> None:
        """Write all fields of the struct that ``value`` names."""
        source = self.source
        fields = fields_of(cls)
        for field in fields:
            if source.version not in field.versions and not field.ignorable:
                self.refuse(cls, field, value)
        for field in source.plain(fields):
            self.field(cls, field, f"{value}.{field.name}")
        if not source.flexible:
            return
        if tagged := source.tagged(fields):
            self.tag_section(cls, tagged, value)
        else:
            self.run.append(("x", ""))

    def refuse(self, cls: StructClass, field: Field, value: str) -> None:
        """Write the check that refuses a value this version has no field for: it must not be lost in silence."""
        text = f"{cls.__name__}.{field.name} has a value, and version {self.source.version} has no such field"
        self.source.line(f"if {self.differs(field, f'{value}.{field.name}')}: raise EncodeError({text!r})")

    def differs(self, field: Field, value: str) -> str:
        """Returns the condition that a value differs from the field's default."""
        default = field.default_of()
        if default is None:
            return f"{value} is not None"
        if default == [] and self.source.version not in field.nullable:
            return value
        if isinstance(default, (bool, int, str)):
            return f"{value} != {default!r}"
        return f"{value} != {self.source.constant('default', default)}"

    def tag_section(self, cls: StructClass, tagged: list[Field], value: str) -> None:
        """Write the tags of all values that differ from their field's default."""
        source = self.source
        self.flush()
        tags, payload = source.fresh("tags"), source.fresh("payload")
        values = [source.fresh(f.name) for f in tagged]
        for field, name in zip(tagged, values, strict=True):
            source.line(f"{name} = {value}.{field.name}")
        differs = [self.differs(f, v) for f, v in zip(tagged, values, strict=True)]
        source.line(f"if {' or '.join(differs)}:")
        source.depth += 1
        source.line(f"{tags} = []")
        outer = self.append
        for field, name, condition in zip(tagged, values, differs, strict=True):
            self.append = source.fresh("append")
            source.line(f"if {condition}:")
            source.depth += 1
            source.line(f"{payload} = []")
            source.line(f"{self.append} = {payload}.append")
            self.field(cls, field, name, in_tag=True)
            self.flush()
            source.line(f"{tags}.append(({field.tag}, b''.join({payload})))")
            source.depth -= 1
        self.append = outer
        source.line(f"{outer}(put_uvarint(len({tags})))")
        source.line(f"for tag, content in {tags}:")
        source.line(f"    {outer}(put_uvarint(tag) + put_uvarint(len(content)) + content)")
        source.depth -= 1
        source.line("else:")
        source.line(f"    {outer}(b'\\0')")

    def field(self, cls: StructClass, field: Field, value: str, in_tag: bool = False) -> None:
        """Write one field inline."""
        nullable = self.source.version in field.nullable
        compact = self.source.is_flexible(field)
        name = f"{cls.__name__}.{field.name}"
        if field.type.array:
            self.array(name, field.type, value, nullable, compact)
        elif field.type.struct is not None:
            self.nested(field.type.struct, value, nullable, in_tag)
        else:
            self.scalar(name, field.type.kind, value, nullable, compact)

    def scalar(self, name: str, kind: str, value: str, nullable: bool, compact: bool) -> None:
        """Write a value that is neither array nor struct."""
        source = self.source
        if kind == "uuid":
            local = source.fresh("uuid")
            source.line(f"{local} = {value}")
            source.line(f"if len({local}) != 16: raise EncodeError('{name} must have 16 bytes')")
            self.run.append(("16s", local))
        elif kind in FIXED_FORMATS:
            self.run.append((FIXED_FORMATS[kind], value))
        else:
            self.variable(name, kind, value, nullable, compact)

    def variable(self, name: str, kind: str, value: str, nullable: bool, compact: bool) -> None:
        """Write a string, bytes or records: a length, then the content."""
        source = self.source
        content, length = source.fresh("content"), source.fresh("length")
        source.line(f"{content} = {value}")
        if nullable:
            empty = '""' if kind == "string" else 'b""'
            source.line(f"if {content} is None: {content} = {empty}; {length} = {0 if compact else -1}")
            source.line("else:")
            source.depth += 1
        if kind == "string":
            source.line(f"{content} = {content}.encode()")
        size = f"len({content})"
        if kind == "records":
            size = f"({size} if type({content}) is bytes else records_size({content}))"
        source.line(f"{length} = {size}{' + 1' if compact else ''}")
        source.depth -= nullable
        if compact:
            limit = f"if {length} > 32768: raise EncodeError('{name} is longer than 32767 bytes')"
            if kind == "string":
                self.flush_with_length(length, limit)
            else:
                self.flush_with_long_length(length)
        else:
            self.run.append(("h" if kind == "string" else "i", length))
            self.flush()
        if kind == "records":
            source.line(
                f"if type({content}) is bytes and {length} <= {SMALL_PART_BYTES + compact}: {self.append}({content})"
            )
            source.line(f"else: put_records({content}, out, parts)")
        else:
            if kind == "string" and nullable:
                source.line(f"if {content}: {self.append}({content})")
            else:
                source.line(f"{self.append}({content})")

    def array(self, name: str, kind: FieldType, value: str, nullable: bool, compact: bool) -> None:
        """Write an array: its count, then the elements."""
        source = self.source
        items, count = source.fresh("items"), source.fresh("count")
        source.line(f"{items} = {value}")
        if nullable:
            source.line(f"if {items} is None: {items} = (); {count} = {0 if compact else -1}")
            source.line(f"else: {count} = len({items}){' + 1' if compact else ''}")
        else:
            source.line(f"{count} = len({items}){' + 1' if compact else ''}")
        if kind.kind in FIXED_FORMATS and kind.kind != "uuid":
            length = "B" if compact else "i"
            self.run.append((f"{length}*{FIXED_FORMATS[kind.kind]}", f"{count}, *{items}"))
            return
        if compact:
            self.flush_with_length(count)
        else:
            self.run.append(("i", count))
            self.flush()
        element = source.fresh("element")
        source.line(f"for {element} in {items}:")
        source.depth += 1
        # Within a tag the pieces go to another list, which is joined when the tag is complete.
        outermost = self.append == "append"
        source.count_step(
            f"if len(out) > {STEP_PIECES}: parts.append(b''.join(out)); out.clear()" if outermost else ""
        )
        if kind.struct is not None:
            self.struct(kind.struct, element)
        else:
            self.scalar(name, kind.kind, element, False, compact)
        self.flush()
        source.depth -= 1

    def nested(self, struct_class: StructClass, value: str, nullable: bool, in_tag: bool) -> None:
        """Write a struct inline, after a marker if it is nullable."""
        source = self.source
        local = source.fresh("struct")
        source.line(f"{local} = {value}")
        if not nullable:
            self.struct(struct_class, local)
            return
        self.flush()
        null: Any = b"\0" if in_tag else b"\xff"
        source.line(f"if {local} is None:")
        source.line(f"    {self.append}({null!r})")
        source.line("else:")
        source.depth += 1
        self.run.append(("b", "1"))
        self.struct(struct_class, local)
        self.flush()
        source.depth -= 1
