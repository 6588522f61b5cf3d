"""Runs decoders on a batch of messages: tables in the archive's types, with lineage and quarantine.

It works on whole columns, which adds a few percent to the decoders' own time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from blumfeld.spi.decoders import Decoded, Decoder, Rejected
from blumfeld_sink_spark import column_types, stamps
from blumfeld_sink_spark.errors import ArchiveError, SettingsError, words_of
from blumfeld_sink_spark.range_counter import Fates
from blumfeld_sink_spark.range_counts import NULL_VALUE, UNNAMED
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.tables import DERIVED, QUARANTINE, RAW, tables

SEQUENCES = pa.schema(
    [
        pa.field("row", pa.int32(), nullable=False),
        pa.field("venue", pa.string(), nullable=False),
        pa.field("symbol", pa.string(), nullable=False),
        pa.field("stream", pa.string(), nullable=False),
        pa.field("first_id", pa.int64()),
        pa.field("last_id", pa.int64()),
        pa.field("prev_id", pa.int64()),
        pa.field("ts_event", pa.int64(), nullable=False),
        pa.field("ts_event_is_recv", pa.bool_()),
        pa.field("ts_recv", pa.int64(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
    ]
)
"""Schema of ``Applied.sequences``. ``row`` is the message's index in the batch."""
_NO_SEQUENCES = SEQUENCES.empty_table()

NOT_THE_MESSAGE = (ArchiveError, ImportError, MemoryError, OSError)
"""Errors of a decoder that say nothing about a message. No message is quarantined for them; the batch is run again."""

_TOPIC_ENTRY = re.compile(r"([A-Za-z0-9._-]+)=(.+)", re.DOTALL)


@attrs.frozen
class Applied:
    """The rows and counts of a decoded batch."""

    tables: dict[str, pa.Table]
    """Tables by name, sorted by name. They have exactly the archive's columns and types, and their rows are in the
    order of the offsets. Tables without a row are left out. ``quarantine`` is a table too.
    """
    sequences: pa.Table
    """Schema ``SEQUENCES``, in the order of the offsets."""
    decoders: dict[str, int]
    """Version by decoder name."""
    fates: dict[str, Fates]
    """Number of messages that each decoder read, quarantined and passed over."""
    has_row: npt.NDArray[np.bool_]
    """For each message, whether a table (``quarantine`` too) has a row of it."""
    messages: pa.Table
    """For each message: ``offset``, ``ts_recv``; ``unread``: a decoder rejected it and none read it (``raw`` reads
    nothing); ``bad_recv``: its header with the time of receipt holds none.
    """


def decoders_for(topic: str, settings: ArchiveSettings) -> list[Decoder]:
    """Returns the decoders that the settings name for a topic, in their order, each once: every ``NAME``, and every
    ``TOPIC=NAME`` with this topic.

    A name with arguments (``confluent:trades?venue=x``) isn't taken for ``TOPIC=NAME``: no topic has a colon.

    :raises SettingsError: no such decoder, or none for this topic
    """
    from blumfeld_sink_spark.decoders import catalog

    names: dict[str, None] = {}
    for entry in settings.decoders:
        match = _TOPIC_ENTRY.fullmatch(entry)
        if match is None:
            names[entry] = None
        elif match[1] == topic:
            names[match[2]] = None
    if not names:
        raise SettingsError(
            f"archive.decoders: the topic {topic} has none; allowed: NAME for all topics, or {topic}=NAME"
        )
    return [catalog.find(name, settings.decoder_plugins, settings) for name in names]


def decode_rows(decoders: Sequence[Decoder], rows: pa.RecordBatch, settings: ArchiveSettings) -> Applied:
    """Runs each decoder on ``rows`` of one topic and partition, which are in the order of the offsets.

    ``ts_recv`` is the decoder's value, else the header ``settings.recv_header`` (ns in ASCII), else the Kafka
    timestamp; in ``raw`` it is always the Kafka timestamp. ``ts_event`` of a row with ``ts_event_is_recv`` becomes the
    same time.

    A message with a value that the table can't hold is rejected whole. ``quarantine`` has a row for each decoder that
    rejects a message. A decoder that raises gets the batch again by halves, so that only the messages on which it
    raises are rejected.

    :raises ArchiveError: the decoder itself is wrong (an unknown table or column), or can't work now (its schema
        registry is away). No message is quarantined, and the batch may be tried again
    """
    frame = _Frame.of(rows, settings)
    parts: dict[str, list[pa.Table]] = {}
    sequences = []
    fates = {}
    has_row, known, rejected = (np.zeros(rows.num_rows, np.bool_) for _ in range(3))
    for decoder in decoders:
        message_fates = _MessageFates(rows.num_rows)
        for start, decoded in _decode(decoder, rows, 0):
            made = _make(decoder, decoded, start, frame)
            for name, table in made.tables:
                parts.setdefault(name, []).append(table)
                message_fates.take(name, table)
                if name not in (RAW, QUARANTINE):
                    known[table.column("row").to_numpy()] = True
            sequences.append(made.sequences)
            message_fates.passed_over(decoder, decoded, start)
        fates[decoder.name] = message_fates.fates(rows)
        has_row |= message_fates.read | message_fates.rejected
        rejected |= message_fates.rejected
        known[message_fates.named()] = True
    return Applied(
        tables={name: _in_order(parts[name]).drop_columns("row") for name in sorted(parts)},
        sequences=_in_order(sequences) if sequences else _NO_SEQUENCES,
        decoders={decoder.name: decoder.version for decoder in decoders},
        fates=fates,
        has_row=has_row,
        messages=pa.table(
            {
                "offset": rows.column("offset"),
                "ts_recv": frame.received,
                "unread": rejected & ~known,
                "bad_recv": frame.bad_recv,
            }
        ),
    )


class _MessageFates:
    """The fate of each message of a batch in one decoder."""

    def __init__(self, messages: int) -> None:
        self.read = np.zeros(messages, np.bool_)
        self.rejected = np.zeros(messages, np.bool_)
        self._kinds: dict[int, str] = {}

    def take(self, name: str, table: pa.Table) -> None:
        """Notes the messages that have rows in this table."""
        rows_taken = self.rejected if name == QUARANTINE else self.read
        rows_taken[table.column("row").to_numpy()] = True

    def passed_over(self, decoder: Decoder, decoded: Decoded, start: int) -> None:
        """Notes the kinds of the messages that the decoder passed over.

        :raises ArchiveError: the decoder names a message that the batch doesn't have
        """
        for message in decoded.passed_over:
            if not 0 <= message.row < len(self.read) - start:
                raise ArchiveError(
                    f"decoder {decoder.name} is wrong: it passes over message {message.row} of a batch of "
                    f"{len(self.read) - start}"
                )
            self._kinds[start + message.row] = message.kind

    def named(self) -> list[int]:
        """Returns the messages of which the decoder says that it passed them over."""
        return list(self._kinds)

    def fates(self, rows: pa.RecordBatch) -> Fates:
        """Returns the counts. A message without a row counts as passed over even if the decoder didn't name it."""
        kinds: Counter[str] = Counter()
        silent = np.flatnonzero(~(self.read | self.rejected)).tolist()
        null = rows.column("value").is_null() if silent else None
        for row in silent:
            unnamed = NULL_VALUE if null is not None and null[row].as_py() else UNNAMED
            kinds[self._kinds.get(row, unnamed)] += 1
        return Fates(int((self.read & ~self.rejected).sum()), int(self.rejected.sum()), kinds)


def _decode(decoder: Decoder, rows: pa.RecordBatch, start: int) -> Iterator[tuple[int, Decoded]]:
    """Yields (index of the piece's first row, its decoded rows): one piece, or more where the decoder raises."""
    try:
        decoded = decoder.decode(rows)
    except NOT_THE_MESSAGE as error:
        raise _told(decoder, error) from error
    except Exception as error:
        if rows.num_rows <= 1:
            yield start, Decoded({}, None, [Rejected(0, f"the decoder raised {words_of(error)}")])
            return
    else:
        yield start, decoded
        return
    half = rows.num_rows // 2
    yield from _decode(decoder, rows.slice(0, half), start)
    yield from _decode(decoder, rows.slice(half), start + half)


def _told(decoder: Decoder, error: BaseException) -> BaseException:
    if isinstance(error, ArchiveError):
        return type(error)(f"decoder {decoder.name}: {error}")
    if isinstance(error, ImportError):
        return ArchiveError(f"decoder {decoder.name}: {error}; install what it needs")
    return error


@attrs.frozen
class _Lineage:
    """The source message of each row of a table."""

    place: pa.Array
    """The message's index in the batch."""
    offset: pa.Array
    received: pa.Array
    partition: pa.Array


@attrs.frozen
class _Frame:
    """The facts of a batch that all its decoders share."""

    rows: pa.RecordBatch
    schemas: dict[str, pa.Schema]
    received: pa.Array
    bad_recv: npt.NDArray[np.bool_]
    stamped: pa.Array
    partition: int
    lineages: dict[tuple[int, int, int, int], tuple[pa.Array, _Lineage]] = attrs.field(factory=dict)
    """Lineages by the memory address of the column ``row``, because a decoder's tables often share that column. The
    value keeps the column alive: otherwise another column could get the same address.
    """

    @classmethod
    def of(cls, rows: pa.RecordBatch, settings: ArchiveSettings) -> _Frame:
        stamped = stamps.kafka_ns(rows)
        received, bad_recv = stamps.received_ns(rows, stamped, settings.recv_header)
        partition = rows.column("partition")[0].as_py() if rows.num_rows else 0
        schemas = {table.name: table.schema for table in tables(*settings.price_type).values()}
        return cls(rows, schemas, received, bad_recv, stamped, partition)

    def schema(self, name: str) -> pa.Schema:
        """Returns the schema of a table that a decoder may fill.

        :raises ArchiveError: there is no such table, or decoders may not fill it
        """
        if name not in self.schemas or name == QUARANTINE:
            allowed = sorted(self.schemas.keys() - {QUARANTINE, *DERIVED})
            raise ArchiveError(
                f"there is no table {name} that a decoder may fill; allowed: {', '.join(allowed)}"
            )
        return self.schemas[name]

    def lineage(self, name: str, given: pa.Table, start: int) -> _Lineage:
        """Returns the lineage of a decoder's table.

        :param start: index of the piece's first message in the batch
        :raises ArchiveError: a row names no message of the piece
        """
        row = column_types.row_column(name, given)
        key = (row.buffers()[1].address, row.offset, len(row), start)
        if key not in self.lineages or row.type != self.lineages[key][0].type or row.null_count:
            self.lineages[key] = (row, self._lineage(name, row, start))
        return self.lineages[key][1]

    def _lineage(self, name: str, row: pa.Array, start: int) -> _Lineage:
        column_types.check_rows(name, row, self.rows.num_rows - start)
        place = row.cast(pa.int32())
        place = pc.add(place, pa.scalar(start, pa.int32())) if start else place
        partition = pa.repeat(pa.scalar(self.partition, pa.int32()), len(place))
        return _Lineage(place, self.rows.column("offset").take(place), self.received.take(place), partition)


@attrs.frozen
class _Made:
    """One decoder's rows of one piece of a batch, in the archive's types. ``row`` is the index in the whole batch."""

    tables: list[tuple[str, pa.Table]]
    """(name, table with the column ``row`` first); quarantine comes last."""
    sequences: pa.Table


def _make(decoder: Decoder, decoded: Decoded, start: int, frame: _Frame) -> _Made:
    """Fits a decoder's answer to the archive's tables.

    :raises ArchiveError: the decoder itself is wrong
    """
    faults: column_types.Faults = {}
    try:
        fitted = [
            (name, _fitted(name, given, frame.schema(name), start, frame, faults))
            for name, given in decoded.tables.items()
        ]
        sequences = _NO_SEQUENCES
        if decoded.sequences is not None and decoded.sequences.num_rows:
            sequences = _fitted("sequences", decoded.sequences, SEQUENCES, start, frame, faults)
        rejected = _rejected(decoded, start, frame, faults)
    except ArchiveError as error:
        raise ArchiveError(f"decoder {decoder.name} is wrong: {error}") from error
    tables = [(name, _without(rejected, table)) for name, table in fitted]
    if rejected:
        tables.append((QUARANTINE, _quarantine(decoder, rejected, frame)))
    return _Made([(name, table) for name, table in tables if table.num_rows], _without(rejected, sequences))


def _fitted(
    name: str, given: pa.Table, schema: pa.Schema, start: int, frame: _Frame, faults: column_types.Faults
) -> pa.Table:
    """Returns the table in ``schema`` with ``row`` as first column. ``faults`` has indices in the piece."""
    lineage = frame.lineage(name, given, start)
    columns = column_types.fit(name, given, schema, faults)
    columns["row"] = lineage.place
    columns["k_partition"] = lineage.partition
    columns["k_offset"] = columns["offset"] = lineage.offset
    if name == RAW:
        columns["ts_recv"] = frame.stamped.take(lineage.place)
    elif "ts_recv" in given.column_names:
        columns["ts_recv"] = column_types.known_or(columns["ts_recv"], lineage.received)
    else:
        columns["ts_recv"] = lineage.received
    timeless = columns.get("ts_event_is_recv")
    if timeless is not None and pc.any(timeless).as_py():
        columns["ts_event"] = pc.if_else(
            pc.fill_null(timeless, False), columns["ts_recv"], columns["ts_event"]
        )
    wanted = schema if name == "sequences" else _with_row(schema)
    return pa.Table.from_arrays([columns[field.name] for field in wanted], schema=wanted)


@lru_cache(maxsize=64)
def _with_row(schema: pa.Schema) -> pa.Schema:
    return schema.insert(0, SEQUENCES.field("row"))


def _rejected(
    decoded: Decoded, start: int, frame: _Frame, faults: column_types.Faults
) -> dict[int, Rejected]:
    """Returns the first rejection of each message, by the message's index in the batch."""
    first: dict[int, Rejected] = {}
    for rejected in (*decoded.rejected, *(Rejected(row, faults[row]) for row in sorted(faults))):
        if not 0 <= rejected.row < frame.rows.num_rows - start:
            raise ArchiveError(
                f"it rejects message {rejected.row} of a batch of {frame.rows.num_rows - start}"
            )
        first.setdefault(start + rejected.row, rejected)
    return first


def _without(rejected: dict[int, Rejected], table: pa.Table) -> pa.Table:
    """Drops the rows of rejected messages: a message is rejected whole or not at all."""
    if not rejected:
        return table
    return table.filter(pc.invert(pc.is_in(table.column("row"), pa.array(list(rejected), pa.int32()))))


def _quarantine(decoder: Decoder, rejected: dict[int, Rejected], frame: _Frame) -> pa.Table:
    place = pa.array(sorted(rejected), pa.int32())
    rejections = [rejected[nth] for nth in place.to_pylist()]
    columns = {
        "row": place,
        "ts_recv": frame.received.take(place),
        "decoder": pa.repeat(decoder.name, len(place)),
        "error": pa.array([rejection.error for rejection in rejections], pa.string()),
        "schema_id": pa.array([rejection.schema_id for rejection in rejections], pa.int32()),
        "key": frame.rows.column("key").take(place),
        "value": frame.rows.column("value").take(place),
        "k_partition": pa.repeat(pa.scalar(frame.partition, pa.int32()), len(place)),
        "k_offset": frame.rows.column("offset").take(place),
    }
    return pa.table(columns, schema=_with_row(frame.schemas[QUARANTINE]))


def _in_order(parts: list[pa.Table]) -> pa.Table:
    """Joins tables by message; the rows of one message stay in the order of the decoders.

    The order then doesn't depend on how a batch was cut into pieces.
    """
    if len(parts) == 1:
        return parts[0]
    merged = pa.concat_tables(parts)
    return merged.take(pc.sort_indices(merged.column("row")))
