"""``confluent``: Confluent's wire format, with schemas from a registry or a folder.

A value is a zero byte, the schema's id (4 bytes, big-endian), for Protobuf the path to the message in its file, then
the record: Avro, Protobuf or JSON, as the registry says. An Avro schema may be a union of records: several kinds of
records then share a topic. Which field is which column: ``fields``; ``confluent`` finds the table by the record's name,
else by its fields; ``confluent:trades?price=last_px&venue=:XNAS`` says it.

A time is in the unit of its Avro logical type, of the field's suffix (``_ms``, ``_us``, ``_ns``) or of ``field@unit``,
else in ns; a ``google.protobuf.Timestamp`` is one. Where a record has no time it is that of the message; no venue: the
topic; no symbol: the message's key. An unknown schema goes to quarantine with ``schema_id``; a registry that can't be
asked stops the batch, which is tried again.

Protobuf needs serialized schemas: a registry that answers ``format=serialized``, or ``<id>.desc`` in a folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import attrs
import msgspec
import pyarrow as pa

from blumfeld.spi.decoders import Continuity, Decoded, PassedOver, Rejected
from blumfeld_sink_spark import stamps
from blumfeld_sink_spark.decoders.schemas import record_rows
from blumfeld_sink_spark.decoders.schemas.avro import Record, compile_avro
from blumfeld_sink_spark.decoders.schemas.fields import ALIASES, FieldError, Wishes, wishes_of
from blumfeld_sink_spark.decoders.schemas.protobuf import compile_protobuf
from blumfeld_sink_spark.decoders.schemas.record_rows import Message, Shape
from blumfeld_sink_spark.decoders.schemas.registry import (
    AVRO,
    JSON,
    PROTOBUF,
    UnknownSchemaError,
    open_registry,
)
from blumfeld_sink_spark.errors import ArchiveError, words_of

if TYPE_CHECKING:
    from blumfeld_sink_spark.settings import ArchiveSettings

HEADER_BYTES = 5
SCHEMAS_KEPT = 512
_JSON_OBJECT = msgspec.json.Decoder(dict[str, Any], float_hook=Decimal)
"""Numbers with a point become ``Decimal``: a float would round a number of more than 15 digits."""
_NOT_THE_MESSAGE = (ArchiveError, ImportError, MemoryError)


Reader = Callable[[bytes], Record]
"""Reads a payload. It may raise any exception for bytes that don't match the schema."""


@lru_cache(maxsize=SCHEMAS_KEPT)
def reader_of(location: str, schema_id: int) -> Reader:
    """
    :raises UnknownSchemaError: there is none, or it can't be read
    :raises ArchiveError: the registry can't be asked
    """
    schema = open_registry(location).schema(schema_id)
    if schema.kind == AVRO:
        return compile_avro(schema.text, schema.references)
    if schema.kind == PROTOBUF:
        read = compile_protobuf(schema.files)
        return lambda payload: Record(*read(payload), {})
    if schema.kind == JSON:
        return lambda payload: Record("", _JSON_OBJECT.decode(payload), {})
    raise UnknownSchemaError(
        f"a schema of the kind {str(schema.kind)[:40]}; known: {AVRO}, {PROTOBUF}, {JSON}"
    )


@attrs.frozen
class ConfluentDecoder:
    """Asks the registry when it meets an id that this process hasn't met."""

    arguments: str = ""
    registry: str = ""
    version: int = 1

    @classmethod
    def of(cls, settings: ArchiveSettings | None, arguments: str = "") -> ConfluentDecoder:
        """
        :raises SettingsError: the arguments name a table or column that there isn't
        """
        wishes_of(arguments)
        return cls(arguments, settings.schema_registry if settings is not None else "")

    @property
    def name(self) -> str:
        """The name with the arguments: two such decoders may read one topic."""
        return f"confluent:{self.arguments}" if self.arguments else "confluent"

    @property
    def tables(self) -> Sequence[str]:
        """The tables that it may fill."""
        table = wishes_of(self.arguments).table
        return (table,) if table else tuple(sorted(ALIASES))

    @property
    def continuity(self) -> Mapping[str, Continuity]:
        """The continuity that the argument ``check`` sets. A stream is called as its table."""
        check = wishes_of(self.arguments).check
        return dict.fromkeys(self.tables, check) if check is not Continuity.NONE else {}

    def decode(self, rows: pa.RecordBatch) -> Decoded:
        """See :class:`blumfeld.spi.decoders.Decoder`.

        :raises ArchiveError: the registry can't be asked
        """
        batch = _Batch(self.registry, wishes_of(self.arguments))
        for message, value in _messages(rows):
            batch.add(message, value)
        return batch.decoded()


def _messages(rows: pa.RecordBatch) -> Iterator[tuple[Message, bytes]]:
    columns = (rows.column("key"), rows.column("topic"), stamps.kafka_ns(rows), rows.column("value"))
    each = zip(*(column.to_pylist() for column in columns), strict=True)
    for row, (key, topic, stamp, value) in enumerate(each):
        if value is not None:
            yield Message(row, key, topic, stamp), value


@attrs.define
class _Batch:
    """The rows and findings of a batch's messages so far."""

    registry: str
    wishes: Wishes
    rows: dict[str, list[record_rows.Row]] = attrs.field(factory=dict)
    sequences: list[record_rows.Row] = attrs.field(factory=list)
    rejected: list[Rejected] = attrs.field(factory=list)
    passed_over: list[PassedOver] = attrs.field(factory=list)
    unknown: dict[int, str] = attrs.field(factory=dict)
    shapes: dict[tuple[int, str, tuple[str, ...]], Shape] = attrs.field(factory=dict)

    def add(self, message: Message, value: bytes) -> None:
        """A message."""
        schema_id = int.from_bytes(value[1:HEADER_BYTES], "big", signed=True)
        if len(value) < HEADER_BYTES or value[0] != 0 or schema_id < 0:
            self.rejected.append(
                Rejected(message.row, "not Confluent's wire format: no zero byte and schema id")
            )
            return
        try:
            shape, rows = self._rows(message, schema_id, value)
        except (FieldError, UnknownSchemaError) as error:
            self.rejected.append(Rejected(message.row, str(error), schema_id))
            return
        if not rows:
            self.passed_over.append(PassedOver(message.row, f"{shape.table} without a row"))
            return
        self.rows.setdefault(shape.table, []).extend(rows)
        numbered = record_rows.sequence(shape.table, rows[0])
        if numbered is not None:
            self.sequences.append(numbered)

    def _rows(self, message: Message, schema_id: int, value: bytes) -> tuple[Shape, list[record_rows.Row]]:
        read = self._reader(schema_id)
        try:
            name, record, units = read(value[HEADER_BYTES:])
            fields = tuple(record)
        except _NOT_THE_MESSAGE:
            raise
        except Exception as error:  # the libraries raise many kinds for bytes that aren't the schema's
            raise FieldError(f"not a record of schema {schema_id}: {words_of(error)}") from error
        shape = self.shapes.get((schema_id, name, fields))
        if shape is None:
            shape = record_rows.shape_of(name.rpartition(".")[2], fields, self.wishes, units)
            self.shapes[schema_id, name, fields] = shape
        return shape, shape.rows(record, message)

    def _reader(self, schema_id: int) -> Reader:
        if schema_id in self.unknown:
            raise UnknownSchemaError(self.unknown[schema_id])
        try:
            return reader_of(self.registry, schema_id)
        except UnknownSchemaError as error:
            self.unknown[schema_id] = str(error)
            raise

    def decoded(self) -> Decoded:
        """Returns the rows and findings of all messages that were added."""
        tables = {name: record_rows.table(name, self.rows[name]) for name in sorted(self.rows)}
        return Decoded(tables, record_rows.sequences(self.sequences), self.rejected, self.passed_over)
