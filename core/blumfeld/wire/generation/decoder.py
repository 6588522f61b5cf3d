"""Source of a decoder: ``decode(buf, pos) -> (message, pos)``.

``buf`` is a memoryview of bytes that ends where the message must have ended, so nothing beyond can be read:
``struct`` checks fixed sizes, and every other length is checked before its use.
"""

from __future__ import annotations

import struct

from blumfeld.wire.generation.source import STEP_NUMBERS, Source, StructClass, element_min_size
from blumfeld.wire.primitives import NESTING_DEPTH_MAX
from blumfeld.wire.schema import FIXED_FORMATS, Field, FieldType, fields_of


def decoder_source(cls: StructClass, version: int, flexible: bool, in_steps: bool = False) -> Source:
    """Returns the source of the decoder; its function is called ``decode``.

    With ``in_steps`` it is a generator that yields after each ``STEP_ELEMENTS`` elements and returns the
    same result.
    """
    source = Source(cls, version, flexible, in_steps)
    source.names["StructError"] = struct.error
    source.line("end = len(buf)")
    source.begin_steps()
    source.line("try:")
    source.depth += 1
    writer = _Writer(source)
    expression = writer.struct(cls, 0)
    writer.flush()
    source.line(f"return {expression}, pos")
    source.depth -= 1
    source.line("except (StructError, IndexError):")
    source.line(f"    raise DecodeError('{cls.__name__} v{version}: the bytes end too early') from None")
    source.line("except UnicodeDecodeError as error:")
    source.line(f"    raise DecodeError(f'{cls.__name__} v{version}: {{error}}') from None")
    return source


class _Writer:
    """Writes reads into the source. ``run`` collects adjacent fixed-size reads that are not written yet."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.run: list[tuple[str, str]] = []

    def flush(self) -> None:
        """Write the collected run as one call."""
        if not self.run:
            return
        if len(self.run) == 1 and self.run[0][0] == "B":
            # Indexing takes a third of the time of unpacking. Its IndexError is caught below.
            self.source.line(f"{self.run[0][1]} = buf[pos]")
            self.source.line("pos += 1")
            self.run.clear()
            return
        name, size = self.source.packer("".join(f for f, _ in self.run), "unpack_from")
        variables = ", ".join(v for _, v in self.run) + ("," if len(self.run) == 1 else "")
        self.source.line(f"{variables} = {name}(buf, pos)")
        self.source.line(f"pos += {size}")
        self.run.clear()

    def struct(self, cls: StructClass, depth: int) -> str:
        """Read all fields. Returns the expression that makes the object, valid after the run is flushed."""
        if depth > NESTING_DEPTH_MAX:
            raise TypeError(f"{cls.__name__} lies {depth} structs deep")
        source = self.source
        fields = fields_of(cls)
        values = {f.name: self.field(f, depth) for f in source.plain(fields)}
        if source.flexible:
            values |= self.tag_section(cls, source.tagged(fields), depth)
        known = cls.__name__
        if source.names.setdefault(known, cls) is not cls:
            raise TypeError(f"two structs are called {known}")
        return f"{known}({', '.join(f'{n}={v}' for n, v in values.items())})"

    def tag_section(self, cls: StructClass, tagged: list[Field], depth: int) -> dict[str, str]:
        """Read the tag section. Returns the variable that holds each field's value."""
        source = self.source
        count = source.fresh("tags")
        self.run.append(("B", count))
        self.flush()
        values = {f.name: source.fresh(f.name) for f in tagged}
        if not tagged:
            source.line(f"if {count}: pos = skip_tags(buf, pos - 1, end)")
            return values
        for field in tagged:
            default = field.default_of()
            fresh = isinstance(field.default, type)
            made = source.constant(field.name, field.default if fresh else default)
            source.line(f"{values[field.name]} = {made}{'()' if fresh else ''}")
        tag, size, stop = source.fresh("tag"), source.fresh("size"), source.fresh("stop")
        source.line(f"if {count}:")
        source.depth += 1
        source.line(f"if {count} > 127: {count}, pos = uvarint(buf, pos - 1)")
        source.line(f"if {count} > TAGS_MAX: raise DecodeError('{cls.__name__}: too many tagged fields')")
        source.line(f"for _ in range({count}):")
        source.depth += 1
        source.line(f"{tag}, pos = uvarint(buf, pos)")
        source.line(f"{size}, pos = uvarint(buf, pos)")
        source.line(f"{stop} = pos + {size}")
        source.line(
            f"if {stop} > end: raise DecodeError('{cls.__name__}: a tagged field reaches beyond the end')"
        )
        for position, field in enumerate(tagged):
            source.line(f"{'el' if position else ''}if {tag} == {field.tag}:")
            source.depth += 1
            expression = self.field(field, depth, in_tag=True)
            self.flush()
            source.line(f"{values[field.name]} = {expression}")
            source.line(
                f"if pos != {stop}: raise DecodeError('{cls.__name__}.{field.name}: not of its tag\\'s size')"
            )
            source.depth -= 1
        source.line("else:")
        source.line(f"    pos = {stop}")
        source.depth -= 2
        return values

    def field(self, field: Field, depth: int, in_tag: bool = False) -> str:
        """Read one field. Returns the expression of its value, valid after the run is flushed."""
        nullable = self.source.version in field.nullable
        compact = self.source.is_flexible(field)
        if field.type.array:
            return self.array(field, nullable, compact, depth)
        if field.type.kind == "struct":
            return self.nested(field, nullable, in_tag, depth)
        return self.scalar(field.type.kind, field.name, nullable, compact)

    def scalar(self, kind: str, name: str, nullable: bool, compact: bool) -> str:
        """Read a value that is neither array nor struct."""
        value = self.source.fresh(name)
        if kind in FIXED_FORMATS:
            self.run.append((FIXED_FORMATS[kind], value))
            return value
        source = self.source
        length, stop = source.fresh("size"), source.fresh("stop")
        fmt = "B" if compact else "h" if kind == "string" else "i"
        null = self.length(length, fmt, compact, long=kind != "string")
        if nullable:
            source.line(f"if {null}:")
            source.line(f"    {value} = None")
            source.line("else:")
            source.depth += 1
        else:
            source.line(f"if {null}: raise DecodeError('{name} is null and may not be')")
        source.line(f"{stop} = pos + {length}{' - 1' if compact else ''}")
        source.line(f"if {stop} > end: raise DecodeError('{name} reaches beyond the end')")
        if kind == "string":
            if compact:
                source.line(f"if {length} > 32768: raise DecodeError('{name} is longer than 32767 bytes')")
            source.line(f"{value} = str(buf[pos:{stop}], 'utf-8')")
        elif kind == "bytes":
            source.line(f"{value} = bytes(buf[pos:{stop}])")
        else:
            source.line(f"{value} = buf[pos:{stop}]")
        source.line(f"pos = {stop}")
        source.depth -= nullable
        return value

    def length(self, name: str, fmt: str, compact: bool, long: bool = False) -> str:
        """Read a length together with the run before it. Returns the condition for null."""
        self.run.append((fmt, name))
        self.flush()
        return self.rest_of_length(name, compact, long)

    def rest_of_length(self, name: str, compact: bool, long: bool = False) -> str:
        """Read the further bytes of a compact length. Returns the condition for null.

        ``long`` is for lengths that mostly take two bytes: these are read inline.
        """
        if not compact:
            return f"{name} < 0"
        line = self.source.line
        if long:
            line(f"if {name} > 127:")
            line(f"    if buf[pos] < 128: {name} += (buf[pos] << 7) - 128; pos += 1")
            line(f"    else: {name}, pos = uvarint(buf, pos - 1)")
        else:
            line(f"if {name} > 127: {name}, pos = uvarint(buf, pos - 1)")
        return f"not {name}"

    def array(self, field: Field, nullable: bool, compact: bool, depth: int) -> str:
        """Read an array. Its count is checked against the remaining bytes before anything is allocated."""
        source = self.source
        value, count = source.fresh(field.name), source.fresh("count")
        self.run.append(("B" if compact else "i", count))
        self.flush()
        short = field.type.kind in FIXED_FORMATS and field.type.kind != "uuid"
        if short:
            self.short_array(field.type.kind, value, count, compact)
            source.line("else:")
            source.depth += 1
        self.any_array(field, value, count, nullable, depth)
        source.depth -= short
        return value

    def short_array(self, kind: str, value: str, count: str, compact: bool) -> None:
        """Read an array of less than 128 fixed-size elements; ``struct`` checks that the bytes are there."""
        fmt = FIXED_FORMATS[kind]
        size = struct.calcsize(">" + fmt)
        unpackers = self.source.unpackers_by_count(fmt, compact)
        self.source.line(f"if {'0 <' if compact else '0 <='} {count} < 128:")
        self.source.line(f"    {value} = [*{unpackers}[{count}](buf, pos)]")
        self.source.line(f"    pos += {size} * {count}{f' - {size}' if compact else ''}")

    def any_array(self, field: Field, value: str, count: str, nullable: bool, depth: int) -> None:
        """Read the rest of a count, and the array."""
        source = self.source
        compact = source.is_flexible(field)
        null = self.rest_of_length(count, compact)
        if nullable:
            source.line(f"if {null}:")
            source.line(f"    {value} = None")
            source.line("else:")
            source.depth += 1
        else:
            source.line(f"if {null}: raise DecodeError('{field.name} is null and may not be')")
        if compact:
            source.line(f"{count} -= 1")
        smallest = element_min_size(field, source.version, source.flexible)
        source.line(f"if {count} * {smallest} > end - pos or {count} > ARRAY_LENGTH_MAX:")
        source.line(f"    raise DecodeError(f'{field.name}: {{{count}}} elements can not be there')")
        self.elements(field.name, field.type, value, count, compact, depth)
        source.depth -= nullable

    def elements(self, name: str, kind: FieldType, value: str, count: str, compact: bool, depth: int) -> None:
        """Read ``count`` elements into a new list."""
        source = self.source
        if kind.kind == "uuid":
            if source.in_steps:
                source.line(f"{value} = []")
                source.line(f"for _ in range({count}):")
                source.depth += 1
                source.count_step()
                source.line(f"{value}.append(bytes(buf[pos : pos + 16]))")
                source.line("pos += 16")
                source.depth -= 1
                return
            source.line(f"{value} = [bytes(buf[i : i + 16]) for i in range(pos, pos + 16 * {count}, 16)]")
            source.line(f"pos += 16 * {count}")
            return
        if kind.kind in FIXED_FORMATS:
            fmt = FIXED_FORMATS[kind.kind]
            source.names["unpack_from"] = struct.unpack_from
            if source.in_steps:
                block, size = source.fresh("block"), struct.calcsize(">" + fmt)
                source.line(f"{value} = []")
                source.line(f"while {count} > 0:")
                source.line(f"    {block} = min({count}, {STEP_NUMBERS})")
                source.line(f"    {value} += unpack_from(f'>{{{block}}}{fmt}', buf, pos)")
                source.line(f"    pos += {size} * {block}")
                source.line(f"    {count} -= {block}")
                source.line("    yield")
                return
            source.line(f"{value} = list(unpack_from(f'>{{{count}}}{fmt}', buf, pos)) if {count} else []")
            source.line(f"pos += {struct.calcsize('>' + fmt)} * {count}")
            return
        source.line(f"{value} = []")
        source.line(f"for _ in range({count}):")
        source.depth += 1
        source.count_step()
        if kind.struct is not None:
            expression = self.struct(kind.struct, depth + 1)
        else:
            expression = self.scalar(kind.kind, f"{name}_element", False, compact)
        self.flush()
        source.line(f"{value}.append({expression})")
        source.depth -= 1

    def nested(self, field: Field, nullable: bool, in_tag: bool, depth: int) -> str:
        """Read a struct inline, or null."""
        source = self.source
        assert field.type.struct is not None
        if not nullable:
            return self.struct(field.type.struct, depth + 1)
        value, marker = source.fresh(field.name), source.fresh("marker")
        if in_tag:
            source.line(f"{marker}, pos = uvarint(buf, pos)")
        else:
            self.run.append(("b", marker))
            self.flush()
        source.line(f"if {marker} {'<=' if in_tag else '<'} 0:")
        source.line(f"    {value} = None")
        source.line("else:")
        source.depth += 1
        expression = self.struct(field.type.struct, depth + 1)
        self.flush()
        source.line(f"{value} = {expression}")
        source.depth -= 1
        return value
