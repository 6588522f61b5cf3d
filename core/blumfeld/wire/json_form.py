"""Messages in Kafka's own JSON form, as its tools print them and its files (quorum-state) hold them.

Names are in camel case; bytes and records in base64, uuids in URL-safe base64 of 22 characters, null as
null. Every field of the version is present, except a tagged field with its default. A value that does not
fit the version is dropped or refused as in encoding.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any, TypeVar

from blumfeld.wire.primitives import DecodeError, EncodeError, Records, uuid_bytes, uuid_text
from blumfeld.wire.schema import FIXED_FORMATS, AnyStruct, Field, Message, Struct, Versions, fields_of

M = TypeVar("M", bound=Message)
Json = dict[str, Any]

_INTEGER_BOUNDS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}


def to_json(message: Message, version: int) -> Json:
    """Returns the message as an object for ``json.dumps``.

    :raises EncodeError: a value that this version does not know and that may not be ignored
    """
    _check_version(message.meta.valid, version, EncodeError)
    return _struct_to_json(message, version)


def from_json(cls: type[M], version: int, value: object) -> M:
    """Build a message from the object that :func:`to_json` returns. Numbers must fit; unknown names are
    refused.

    :raises DecodeError: the object is not this message in this version
    """
    _check_version(cls.meta.valid, version, DecodeError)
    message: M = _struct_from_json(cls, version, value, cls.__name__)
    return message


def _check_version(valid: Versions, version: int, error: type[ValueError]) -> None:
    if version not in valid:
        raise error(f"there are versions {valid}, not {version}")


def _struct_to_json(struct: AnyStruct, version: int) -> Json:
    result: Json = {}
    for field in fields_of(type(struct)):
        value = getattr(struct, field.name)
        differs = version not in field.versions or version in field.tagged
        if differs and value == field.default_of():
            continue
        if version not in field.versions:
            if field.ignorable:
                continue
            raise EncodeError(f"{type(struct).__name__}.{field.name} is not in version {version}")
        result[field.json_name] = _field_to_json(field, value, version)
    return result


def _field_to_json(field: Field, value: Any, version: int) -> Any:
    if value is None:
        if version not in field.nullable:
            raise EncodeError(f"{field.name} is None and may not be")
        return None
    if field.type.array:
        return [_value_to_json(field, item, version) for item in value]
    return _value_to_json(field, value, version)


def _value_to_json(field: Field, value: Any, version: int) -> Any:
    match field.type.kind:
        case "struct":
            return _struct_to_json(value, version)
        case "uuid":
            return uuid_text(value)
        case "bytes" | "records":
            return b64encode(_in_memory(value)).decode()
        case _:
            return value


def _in_memory(value: Records) -> bytes:
    if isinstance(value, list):
        return b"".join(_in_memory(part) for part in value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise EncodeError("records that are not in memory have no JSON form")


def _struct_from_json(cls: type[Any], version: int, value: object, path: str) -> Any:
    if not isinstance(value, dict):
        raise DecodeError(f"{path} must be an object, not {value!r}")
    left = dict(value)
    values: dict[str, Any] = {}
    for field in fields_of(cls):
        if version not in field.versions:
            continue
        where = f"{path}.{field.json_name}"
        if field.json_name in left:
            values[field.name] = _field_from_json(field, left.pop(field.json_name), version, where)
        elif version not in field.tagged:
            raise DecodeError(f"{where} is missing")
    if left:
        known = ", ".join(f.json_name for f in fields_of(cls) if version in f.versions)
        raise DecodeError(
            f"{path} has no {next(iter(left))} in version {version}; it has: {known or 'nothing'}"
        )
    return cls(**values)


def _field_from_json(field: Field, value: Any, version: int, path: str) -> Any:
    if value is None:
        if version not in field.nullable:
            raise DecodeError(f"{path} may not be null")
        return None
    if not field.type.array:
        return _value_from_json(field, value, version, path)
    if not isinstance(value, list):
        raise DecodeError(f"{path} must be a list, not {value!r}")
    return [_value_from_json(field, item, version, f"{path}[{at}]") for at, item in enumerate(value)]


def _value_from_json(field: Field, value: Any, version: int, path: str) -> Any:
    kind = field.type.kind
    if kind == "struct":
        return _struct_from_json(field.type.struct or Struct, version, value, path)
    if kind in _INTEGER_BOUNDS:
        lowest, highest = _INTEGER_BOUNDS[kind]
        if type(value) is int and lowest <= value <= highest:
            return value
    elif kind == "bool":
        if isinstance(value, bool):
            return value
    elif kind == "float64":
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    elif isinstance(value, str):
        return _text_from_json(kind, value, path)
    wanted = kind if kind in FIXED_FORMATS and kind != "uuid" else "text"
    raise DecodeError(f"{path} must be {wanted}, not {value!r}")


def _text_from_json(kind: str, value: str, path: str) -> str | bytes | memoryview:
    if kind == "string":
        return value
    try:
        if kind == "uuid":
            return uuid_bytes(value)
        content = b64decode(value, validate=True)
    except ValueError as error:
        raise DecodeError(f"{path}: {error}") from None
    return memoryview(content) if kind == "records" else content
