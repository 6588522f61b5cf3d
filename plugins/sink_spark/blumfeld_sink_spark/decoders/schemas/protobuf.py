"""Protobuf messages to plain values, by descriptors that the schema brings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from importlib import import_module
from typing import Any

from blumfeld_sink_spark.decoders.schemas.registry import UnknownSchemaError
from blumfeld_sink_spark.errors import words_of

INDEXES_MAX = 64
DECIMAL_BYTES_MAX = 32
_WELL_KNOWN = "google/protobuf/"
_DECIMAL_FILE = "confluent/type/decimal.proto"
_BYTES, _UINT32, _INT32 = 12, 13, 5


class Nanos(int):
    """A time in ns since the epoch, whatever the field is called."""


def compile_protobuf(files: Sequence[bytes]) -> Callable[[bytes], tuple[str, dict[str, Any]]]:
    """Returns a function that reads the payload behind the schema's id: the message indexes, then the message.

    It returns the message's name and fields. It may raise any exception for bytes that don't match the schema.

    Imports of ``google/protobuf`` and ``confluent/type/decimal.proto`` need not be among the files.

    :raises UnknownSchemaError: the files don't make a schema
    """
    from google.protobuf import descriptor_pool, message_factory
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    pool = descriptor_pool.DescriptorPool()
    try:
        protos = [FileDescriptorProto.FromString(file) for file in files]
        given = {proto.name for proto in protos}
        for proto in protos:
            for name in proto.dependency:
                if name not in given:
                    given.add(name)
                    _add_known(pool, name)
            pool.AddSerializedFile(proto.SerializeToString())
        main = pool.FindFileByName(protos[-1].name)
    except UnknownSchemaError:
        raise
    except Exception as error:  # protobuf's pools raise many kinds for a bad file
        raise UnknownSchemaError(f"the Protobuf schema can't be read: {words_of(error)}") from error
    order = [message.name for message in protos[-1].message_type]

    def read(payload: bytes) -> tuple[str, dict[str, Any]]:
        indexes, at = message_indexes(payload)
        descriptor = main.message_types_by_name[order[indexes[0]]]
        for index in indexes[1:]:
            descriptor = descriptor.nested_types[index]
        message = message_factory.GetMessageClass(descriptor).FromString(payload[at:])
        return descriptor.name, _fields(message)

    return read


def message_indexes(payload: bytes) -> tuple[list[int], int]:
    """Returns the path to the message type in its file, and the position at which the message begins.

    The path is a count and that many indexes, as zigzag varints. A single 0 stands for the first message type.

    :raises ValueError: the payload doesn't begin with such a path
    """
    count, at = zigzag(payload, 0)
    if count == 0:
        return [0], at
    if not 0 < count <= INDEXES_MAX:
        raise ValueError("a list of message indexes that can't be")
    indexes = []
    for _ in range(count):
        index, at = zigzag(payload, at)
        if index < 0:
            raise ValueError("a negative message index")
        indexes.append(index)
    return indexes, at


def zigzag(payload: bytes, at: int) -> tuple[int, int]:
    """Reads a signed integer as Protobuf and Avro write it. Returns it and the place after it.

    :raises ValueError: the bytes there are none of 35 bits
    """
    number = 0
    for shift in range(0, 35, 7):
        if at >= len(payload):
            break
        byte = payload[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
    raise ValueError("a varint that does not end")


def _add_known(pool: Any, name: str) -> None:
    """A file that everybody has, with its own imports."""
    if name == _DECIMAL_FILE:
        pool.AddSerializedFile(_decimal_file())
        return
    if not name.startswith(_WELL_KNOWN):
        raise UnknownSchemaError(f"the Protobuf schema imports {name}, which the registry did not bring")
    try:
        module = import_module(f"{name.removesuffix('.proto').replace('/', '.')}_pb2")
    except ImportError as error:
        raise UnknownSchemaError(f"the Protobuf schema imports {name}, which there is not") from error
    for dependency in module.DESCRIPTOR.dependencies:
        _add_known(pool, dependency.name)
    pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)


def _decimal_file() -> bytes:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto(name=_DECIMAL_FILE, package="confluent.type", syntax="proto3")
    message = file.message_type.add(name="Decimal")
    for number, (name, kind) in enumerate([("value", _BYTES), ("precision", _UINT32), ("scale", _INT32)], 1):
        message.field.add(name=name, number=number, type=kind, label=1)
    serialized: bytes = file.SerializeToString()
    return serialized


def _fields(message: Any) -> dict[str, Any]:
    """Returns the fields by name; an absent field is ``None``."""
    values: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            continue
        value = getattr(message, field.name)
        if _repeated(field):
            values[field.name] = [_value(field, element) for element in value]
        elif field.has_presence and not message.HasField(field.name):
            values[field.name] = None
        else:
            values[field.name] = _value(field, value)
    return values


def _repeated(field: Any) -> bool:
    """``label`` is going, ``is_repeated`` came with version 6."""
    return bool(field.is_repeated) if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED


def _value(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return value if named is None else named.name
    if field.message_type is None:
        return value
    match field.message_type.full_name:
        case "google.protobuf.Timestamp":
            return Nanos(value.seconds * 1_000_000_000 + value.nanos)
        case "confluent.type.Decimal":
            if len(value.value) > DECIMAL_BYTES_MAX:
                raise ValueError("a decimal that can't be")
            whole = Decimal(int.from_bytes(value.value, "big", signed=True))
            sign, digits, _ = whole.as_tuple()
            return Decimal((sign, digits, -value.scale))
    return _fields(value)
