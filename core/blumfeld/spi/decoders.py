"""Decoders of an archive: from the bytes of a topic to the rows of its tables.

A decoder is a pure function on Arrow batches. It reads no clock and draws nothing from chance: the same bytes
give the same rows, in the same order, for ever; where they must change, its version is raised.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import attrs

if TYPE_CHECKING:
    import pyarrow as pa


class Continuity(enum.Enum):
    """The relation between the ids of consecutive messages when none is missing. A stream is a venue, symbol and
    stream name."""

    CONSECUTIVE = "consecutive"
    """``first_id`` is the ``last_id`` before it plus one (trade ids, spot depth)."""
    CHAINED = "chained"
    """``prev_id`` is the ``last_id`` before it (USD-M depth)."""
    MONOTONE = "monotone"
    """``last_id`` grows; nothing is said about what lies between (best bid and ask)."""
    NONE = "none"
    """The venue numbers nothing."""


@attrs.frozen
class Rejected:
    """A message that isn't what the decoder reads."""

    row: int
    """Its place in the batch."""
    error: str
    """The finding in one line, without the message itself."""
    schema_id: int | None = None
    """Id of the schema that the message names, if its format has schemas."""


@attrs.frozen
class PassedOver:
    """A message that the decoder knows and makes no row of: a heartbeat, an answer, a stream that no table holds."""

    row: int
    """Its place in the batch."""
    kind: str
    """The kind of message, in the venue's words (``markPriceUpdate``). Commits count by it: a few kinds, never an id.
    """


@attrs.frozen
class Decoded:
    """The result of decoding one batch."""

    tables: Mapping[str, pa.Table]
    """Rows by the table's name (``trades``, ``bbo``, ``book_deltas``…). Each has a column ``row`` (int32: the
    message's place in the batch, not falling) and the columns of its table without ``ts_recv``,
    ``k_partition`` and ``k_offset``, which the archive fills in from the message; a decoder that knows the
    time of receipt brings ``ts_recv`` itself. A column of the table that is left out is null.

    ``ts_event`` is the venue's time. Where a message names none, set ``ts_event_is_recv`` (bool) to true and
    ``ts_event`` to anything: the archive puts the time of receipt there, and readers see that it is no time of the
    venue's. Set it to false elsewhere; left out, it is null, and a reader can't tell.
    """
    sequences: pa.Table | None = None
    """The numbers that the exchange gives, a row for each message: ``row`` int32, ``venue``, ``symbol``, ``stream``
    strings, ``first_id``, ``last_id``, ``prev_id`` int64 (``prev_id`` null where there is none), ``ts_event`` int64 ns
    and, as in the tables, ``ts_event_is_recv``. Messages without ids are left out.
    """
    rejected: Sequence[Rejected] = ()
    """Goes to ``quarantine`` with topic, partition, offset and bytes. A message is rejected whole or not at all.
    """
    passed_over: Sequence[PassedOver] = ()
    """Each message that gives no row and isn't rejected, in any order. A null value needs no entry. The archive counts
    a message that is left out here as ``unnamed``.
    """


class Decoder(Protocol):
    """Made by a plug-in's ``blumfeld_decoders``, used in Spark's workers: must pickle, opens nothing until it
    decodes.
    """

    name: str
    """The name of the decoder in settings (``binance-usdm``)."""
    version: int
    """Is written into every commit; raised when the same bytes would give other rows."""
    tables: Sequence[str]
    """The tables that it fills."""
    continuity: Mapping[str, Continuity]
    """Stream → the rule of its sequence numbers. A stream that isn't named has no numbers: ``NONE``."""

    def decode(self, rows: pa.RecordBatch) -> Decoded:
        """Rows of a batch of messages, which has the columns of Spark's Kafka source: ``key`` and ``value``
        binary, ``topic`` string, ``partition`` int32, ``offset`` int64, ``timestamp`` timestamp[us, UTC],
        ``timestampType`` int32 and, if asked for, ``headers`` list<struct<key: string, value: binary>>. All
        of one topic and partition, in the order of the offsets.

        A null value (a tombstone) gives no row and no rejection; every other message gives a row, a rejection or an
        entry in ``passed_over``. Never raises for what a message holds.
        """
        ...
