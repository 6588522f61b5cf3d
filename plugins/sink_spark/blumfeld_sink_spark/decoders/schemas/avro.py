"""Avro's binary encoding to plain values, by fastavro."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import attrs
import msgspec

from blumfeld_sink_spark.decoders.schemas.protobuf import zigzag
from blumfeld_sink_spark.decoders.schemas.registry import UnknownSchemaError
from blumfeld_sink_spark.errors import words_of

UNITS = {"timestamp-millis": "ms", "timestamp-micros": "us", "timestamp-nanos": "ns"}
_LOCAL = "local-"
_DECIMAL = "blumfeld-decimal"
"""Name under which fastavro finds ``_exact_decimal``."""
_UNIT = "blumfeld-unit"
"""Property of a plain schema that keeps the unit of a time."""
_HOLDER = "blumfeld.Message"
"""A record whose one field is the message's. Avro writes such a record as the field alone, so any schema can be read
through it, a name that refers to another schema too.
"""


class Record(NamedTuple):
    """A record that a message holds."""

    name: str
    """The name of the record, with its namespace where it has one."""
    fields: Mapping[str, Any]
    units: Mapping[str, str]
    """The unit of each field that is a time: ``ms``, ``us`` or ``ns``."""


@attrs.frozen
class _Branch:
    """A record of the schema: its only one, or one of a union."""

    name: str
    holder: Any
    units: dict[str, str]

    def read(self, payload: bytes) -> Record:
        """
        :raises Exception: any, for bytes that don't match
        """
        import fastavro

        stream = io.BytesIO(payload)
        held: dict[str, Any] = fastavro.schemaless_reader(stream, self.holder, None)
        if stream.tell() != len(payload):
            raise ValueError("bytes are left over")
        return Record(self.name, held["record"], self.units)


def compile_avro(text: str, references: Sequence[str] = ()) -> Callable[[bytes], Record]:
    """Returns a function that reads a payload of this schema: a record, or a union of records. It may raise any
    exception for bytes that don't match.

    :raises UnknownSchemaError: the schema can't be read, or has no record
    """
    import fastavro
    import fastavro.read

    for kind in (
        "bytes",
        "fixed",
    ):  # fastavro finds readers of logical types by name, in one table for the process
        fastavro.read.LOGICAL_READERS[f"{kind}-{_DECIMAL}"] = _exact_decimal
    named: dict[str, Any] = {}
    try:
        for reference in references:
            fastavro.parse_schema(_plain(msgspec.json.decode(reference)), named_schemas=named)
        given = msgspec.json.decode(text)
        parts = given if isinstance(given, list) else [given]
        branches = [_branch(_plain(part), named) for part in parts]
    except Exception as error:  # fastavro raises many kinds for a bad schema
        raise UnknownSchemaError(f"the Avro schema can't be read: {words_of(error)}") from error
    if not any(branches):
        raise UnknownSchemaError("the Avro schema is neither of a record nor a union with one")
    if not isinstance(given, list):
        (only,) = branches
        assert only is not None
        return only.read

    def read(payload: bytes) -> Record:
        number, at = zigzag(payload, 0)
        branch = branches[number] if 0 <= number < len(branches) else None
        if branch is None:
            raise ValueError("a branch of the union that is no record")
        return branch.read(payload[at:])

    return read


def _branch(schema: Any, named: dict[str, Any]) -> _Branch | None:
    """Returns the reader of a schema; None where it isn't of a record. ``named`` gets the names that it defines."""
    import fastavro

    fields = [{"name": "record", "type": schema}]
    holder = fastavro.parse_schema({"type": "record", "name": _HOLDER, "fields": fields}, named_schemas=named)
    del named[_HOLDER]  # each branch has a holder of that name
    branch = holder["fields"][0]["type"]
    record = named.get(branch) if isinstance(branch, str) else branch
    if not isinstance(record, dict) or record["type"] != "record":
        return None
    units = {field["name"]: unit for field in record["fields"] if (unit := _unit(field["type"]))}
    return _Branch(record["name"], holder, units)


def _plain(schema: Any) -> Any:
    """The schema without the logical types that fastavro would make objects of: its times know no nanoseconds, and its
    decimals are rounded to the precision that the schema declares. Decimals take ``_exact_decimal`` instead.
    """
    if isinstance(schema, list):
        return [_plain(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        key: _plain(value) if key in ("type", "items", "values", "fields") else value
        for key, value in schema.items()
    }
    logical = str(kept.pop("logicalType", None))
    if logical == "decimal":
        kept["logicalType"] = _DECIMAL
    elif unit := UNITS.get(logical.removeprefix(_LOCAL)):
        kept[_UNIT] = unit
    return kept


def _exact_decimal(data: bytes, writer_schema: Any = None, reader_schema: Any = None) -> Decimal:
    """An Avro decimal to its last digit."""
    sign, digits, _ = Decimal(int.from_bytes(data, "big", signed=True)).as_tuple()
    return Decimal((sign, digits, -int(writer_schema.get("scale", 0))))


def _unit(kind: Any) -> str | None:
    """Returns the unit of a field's type, or of the first branch that has one."""
    if isinstance(kind, list):
        return next((unit for branch in kind if (unit := _unit(branch))), None)
    return kind.get(_UNIT) if isinstance(kind, dict) else None
