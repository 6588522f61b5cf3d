"""A simple codec without regard to speed: the oracle for the generated one.

It walks the schema field by field. A parity test compares both; the errors here name the field.
"""

from __future__ import annotations

import struct
from typing import Any, TypeVar

from blumfeld.wire.primitives import (
    ARRAY_LENGTH_MAX,
    STRING_BYTES_MAX,
    TAGS_MAX,
    DecodeError,
    EncodeError,
    put_uvarint,
    uvarint,
)
from blumfeld.wire.schema import FIXED_FORMATS, AnyStruct, Field, Message, Struct, fields_of

M = TypeVar("M", bound=Message)


def decode(cls: type[M], data: bytes | memoryview, version: int) -> M:
    """As :func:`blumfeld.wire.codec.decode`."""
    reader = _Reader(memoryview(data), version, version in cls.meta.flexible)
    message: M = reader.struct(cls)
    if reader.pos != len(reader.buf):
        raise DecodeError(f"{len(reader.buf) - reader.pos} bytes too many")
    return message


def encode(message: Message, version: int) -> bytes:
    """As :func:`blumfeld.wire.codec.encode`."""
    writer = _Writer(version, version in message.meta.flexible)
    writer.struct(message, type(message).__name__)
    return bytes(writer.out)


class _Reader:
    def __init__(self, buf: memoryview, version: int, flexible: bool) -> None:
        self.buf = buf
        self.pos = 0
        self.version = version
        self.flexible = flexible

    def take(self, size: int) -> memoryview:
        if size < 0 or self.pos + size > len(self.buf):
            raise DecodeError(f"{size} bytes are not there")
        self.pos += size
        return self.buf[self.pos - size : self.pos]

    def fixed(self, kind: str) -> Any:
        packer = struct.Struct(">" + FIXED_FORMATS[kind])
        return packer.unpack(self.take(packer.size))[0]

    def uvarint(self) -> int:
        value, self.pos = uvarint(self.buf, self.pos)
        return value

    def length(self, kind: str, compact: bool) -> int:
        """Read a length; -1 is null."""
        return self.uvarint() - 1 if compact else int(self.fixed(kind))

    def struct(self, cls: type[Any]) -> Any:
        values: dict[str, Any] = {}
        fields = fields_of(cls)
        for field in fields:
            if self.version in field.versions and self.version not in field.tagged:
                values[field.name] = self.field(field)
        if self.flexible:
            self.tags(fields, values)
        return cls(**values)

    def tags(self, fields: tuple[Field, ...], values: dict[str, Any]) -> None:
        known = {f.tag: f for f in fields if self.version in f.tagged}
        count = self.uvarint()
        if count > TAGS_MAX:
            raise DecodeError(f"{count} tagged fields")
        for _ in range(count):
            tag, size = self.uvarint(), self.uvarint()
            stop = self.pos + size
            if tag not in known:
                self.take(size)
                continue
            values[known[tag].name] = self.field(known[tag], in_tag=True)
            if self.pos != stop:
                raise DecodeError(f"{known[tag].name} is not of its tag's size")

    def field(self, field: Field, in_tag: bool = False) -> Any:
        nullable = self.version in field.nullable
        compact = self.flexible and not field.never_flexible
        if field.type.array:
            count = self.length("int32", compact)
            if count < 0:
                return self.null(field, nullable)
            if count > min(ARRAY_LENGTH_MAX, len(self.buf) - self.pos):
                raise DecodeError(f"{field.name}: {count} elements")
            return [self.value(field, False, compact) for _ in range(count)]
        if field.type.kind == "struct" and nullable:
            marker = self.uvarint() if in_tag else self.fixed("int8")
            if marker < in_tag:
                return None
        return self.value(field, nullable, compact)

    def null(self, field: Field, nullable: bool) -> None:
        if not nullable:
            raise DecodeError(f"{field.name} is null and may not be")

    def value(self, field: Field, nullable: bool, compact: bool) -> Any:
        kind = field.type.kind
        if kind == "struct":
            return self.struct(field.type.struct or Struct)
        if kind in FIXED_FORMATS:
            return self.fixed(kind)
        size = self.length("int16" if kind == "string" else "int32", compact)
        if size < 0:
            return self.null(field, nullable)
        content = self.take(size)
        if kind == "records":
            return content
        if kind == "bytes":
            return bytes(content)
        if size > STRING_BYTES_MAX:
            raise DecodeError(f"{field.name} has {size} bytes")
        try:
            return str(content, "utf-8")
        except UnicodeDecodeError as error:
            raise DecodeError(f"{field.name}: {error}") from None


class _Writer:
    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.out = bytearray()

    def struct(self, value: AnyStruct, path: str) -> None:
        fields = fields_of(type(value))
        for field in fields:
            field_value, where = getattr(value, field.name), f"{path}.{field.name}"
            if self.version in field.tagged:
                continue
            if self.version in field.versions:
                self.field(field, field_value, where)
            elif not field.ignorable and field_value != field.default_of():
                raise EncodeError(f"{where} has a value, and version {self.version} has no such field")
        if self.flexible:
            self.tags(value, fields, path)

    def tags(self, value: AnyStruct, fields: tuple[Field, ...], path: str) -> None:
        present = [
            f
            for f in sorted(fields, key=lambda f: f.tag)
            if self.version in f.tagged and getattr(value, f.name) != f.default_of()
        ]
        self.out += put_uvarint(len(present))
        for field in present:
            inner = _Writer(self.version, True)
            inner.field(field, getattr(value, field.name), f"{path}.{field.name}", in_tag=True)
            self.out += put_uvarint(field.tag) + put_uvarint(len(inner.out)) + inner.out

    def length(self, kind: str, size: int, compact: bool, path: str) -> None:
        """Write a length; -1 is null."""
        if compact:
            self.out += put_uvarint(size + 1)
        else:
            self.fixed(kind, size, path)

    def fixed(self, kind: str, value: Any, path: str) -> None:
        if kind == "uuid" and (not isinstance(value, bytes) or len(value) != 16):
            raise EncodeError(f"{path} must have 16 bytes")
        try:
            self.out += struct.pack(">" + FIXED_FORMATS[kind], value)
        except struct.error as error:
            raise EncodeError(f"{path}: {value!r} is no {kind}: {error}") from None

    def field(self, field: Field, value: Any, path: str, in_tag: bool = False) -> None:
        nullable = self.version in field.nullable
        compact = self.flexible and not field.never_flexible
        kind = field.type.kind
        if value is None and not nullable:
            raise EncodeError(f"{path} is None and may not be")
        if kind == "struct" and nullable and not field.type.array:
            self.out += (b"\0" if in_tag else b"\xff") if value is None else b"\1"
            if value is None:
                return
        if field.type.array or (kind not in FIXED_FORMATS and kind != "struct" and value is None):
            counted = "int16" if kind == "string" and not field.type.array else "int32"
            self.length(counted, -1 if value is None else len(value), compact, path)
            for position, item in enumerate(value or ()):
                self.value(field, item, compact, f"{path}[{position}]")
            return
        self.value(field, value, compact, path)

    def value(self, field: Field, value: Any, compact: bool, path: str) -> None:
        kind = field.type.kind
        if kind == "struct":
            if field.type.struct is None or not isinstance(value, field.type.struct):
                raise EncodeError(f"{path}: {value!r} is no {field.type.struct}")
            self.struct(value, path)
            return
        if kind in FIXED_FORMATS:
            self.fixed(kind, value, path)
            return
        if kind == "string":
            value = self.text(value, path)
        elif isinstance(value, list):
            value = b"".join(value)
        elif not isinstance(value, (bytes, bytearray, memoryview)):
            raise EncodeError(f"{path}: {value!r} is no bytes")
        self.length("int16" if kind == "string" else "int32", len(value), compact, path)
        self.out += value

    def text(self, value: Any, path: str) -> bytes:
        if not isinstance(value, str):
            raise EncodeError(f"{path}: {value!r} is no text")
        try:
            encoded = value.encode()
        except UnicodeEncodeError as error:
            raise EncodeError(f"{path}: {error}") from None
        if len(encoded) > STRING_BYTES_MAX:
            raise EncodeError(f"{path} is longer than {STRING_BYTES_MAX} bytes")
        return encoded
