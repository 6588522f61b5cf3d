"""Avro's binary encoding to plain values, by fastavro."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import attrs
import msgspec

from blumfeld_sink_spark.decoders.schemas.registry import UnknownSchemaError

UNITS = {"timestamp-millis": "ms", "timestamp-micros": "us", "timestamp-nanos": "ns"}
_PREFIX = "local-"
_DECIMAL = "blumfeld-decimal"
"""Name under which fastavro finds ``_exact_decimal``."""


@attrs.frozen
class Compiled:
    """A schema made ready."""

    name: str
    """The name of the record, without its namespace."""
    read: Callable[[bytes], dict[str, Any]]
    """Reads a payload. It may raise any exception for bytes that don't match the schema."""
    units: dict[str, str]
    """The unit of each field that is a time: ``ms``, ``us`` or ``ns``."""


def compile_avro(text: str, references: Sequence[str] = ()) -> Compiled:
    """
    :raises UnknownSchemaError: it isn't a schema of a record
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
        schema = fastavro.parse_schema(_plain(given), named_schemas=named)
    except Exception as error:  # fastavro raises many kinds for a bad schema
        raise UnknownSchemaError(f"the Avro schema can't be read: {type(error).__name__}") from error
    if not isinstance(given, dict) or given.get("type") != "record":
        raise UnknownSchemaError("the Avro schema is not of a record")

    def read(payload: bytes) -> dict[str, Any]:
        stream = io.BytesIO(payload)
        record: dict[str, Any] = fastavro.schemaless_reader(stream, schema, None)
        if stream.tell() != len(payload):
            raise ValueError("bytes are left over")
        return record

    units = {field["name"]: unit for field in given["fields"] if (unit := _unit(field["type"]))}
    return Compiled(str(given["name"]).rpartition(".")[2], read, units)


def _plain(schema: Any) -> Any:
    """The schema without the logical types that fastavro would make objects of: its times know no nanoseconds, and its
    decimals are rounded to the precision that the schema declares. Decimals take ``_exact_decimal`` instead.
    """
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        key: _plain(value) if key in ("type", "items", "values", "fields") else value
        for key, value in schema.items()
    }
    if kept.pop("logicalType", None) == "decimal":
        kept["logicalType"] = _DECIMAL
    return kept


def _exact_decimal(data: bytes, writer_schema: Any = None, reader_schema: Any = None) -> Decimal:
    """An Avro decimal to its last digit."""
    sign, digits, _ = Decimal(int.from_bytes(data, "big", signed=True)).as_tuple()
    return Decimal((sign, digits, -int(writer_schema.get("scale", 0))))


def _unit(kind: Any) -> str | None:
    if isinstance(kind, list):
        return next((unit for one in kind if (unit := _unit(one))), None)
    if isinstance(kind, dict):
        return UNITS.get(str(kind.get("logicalType")).removeprefix(_PREFIX))
    return None
