"""Messages to try decoders on, and the decoded rows as plain values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from blumfeld.spi.decoders import Decoded, Decoder
from blumfeld_sink_spark.rows import RAW_ROWS

FIRST_OFFSET = 1000
STAMP_US = 1_723_161_256_000_000
Rows = dict[str, list[dict[str, Any]]]

GARBAGE = (
    st.binary(max_size=64)
    | st.sampled_from(
        [b"", b" ", b"{}", b"[]", b"null", b"0", b'""', b'{"e":1}', b"[[[[", b"\x00\x00\x00\x00\x01"]
    )
    | st.text(max_size=20).map(str.encode)
)
"""Bytes that are hardly a message of any feed."""


def batch(values: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None) -> pa.RecordBatch:
    """Returns a batch of one topic and partition: consecutive offsets, a millisecond apart."""
    count = len(values)
    columns = {
        "key": list(keys) if keys is not None else [None] * count,
        "value": list(values),
        "topic": ["ticks"] * count,
        "partition": [0] * count,
        "offset": [FIRST_OFFSET + nth for nth in range(count)],
        "timestamp": [STAMP_US + 1000 * nth for nth in range(count)],
        "timestampType": [0] * count,
    }
    return pa.RecordBatch.from_pydict(columns, schema=RAW_ROWS)


@st.composite
def garbled(draw: st.DrawFn, messages: Sequence[bytes]) -> bytes:
    """Draws one of these messages, damaged: cut off, a byte changed, a piece doubled or taken out. Or unharmed."""
    message = draw(st.sampled_from(list(messages)))
    start, end = sorted(draw(st.tuples(st.integers(0, len(message)), st.integers(0, len(message)))))
    match draw(st.integers(0, 4)):
        case 0:
            return message[:start]
        case 1:
            return message[:start] + message[end:]
        case 2:
            return message[:end] + message[start:]
        case 3 if start < len(message):
            return message[:start] + draw(st.binary(min_size=1, max_size=1)) + message[start + 1 :]
    return message + draw(st.binary(max_size=4))


def hollowed(messages: Sequence[bytes]) -> list[bytes]:
    """Returns each of these messages without one of its values: emptied, or left out with its key. Those that are no
    JSON give none.
    """
    variants = []
    for text in messages:
        try:
            message = json.loads(text)
        except ValueError:
            continue
        for holder, key, value in list(_values(message)):
            holder[key] = type(value)() if isinstance(value, list | dict | str) else None
            variants.append(_as_json(message))
            holder[key] = value
            kept = holder.copy()
            del holder[key]
            variants.append(_as_json(message))
            holder.clear()
            holder.update(kept) if isinstance(holder, dict) else holder.extend(kept)
    return list(dict.fromkeys(variants))


def _values(message: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yields (object or array, key or index, value) of each value inside a JSON value."""
    if isinstance(message, dict):
        inner: Any = message.items()
    else:
        inner = enumerate(message) if isinstance(message, list) else ()
    for key, value in inner:
        yield message, key, value
        yield from _values(value)


def _as_json(message: Any) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def _plain(table: Any, shift: int) -> list[dict[str, Any]]:
    """Returns the rows without their nulls: a column that is left out is null, too."""
    rows = [{name: value for name, value in row.items() if value is not None} for row in table.to_pylist()]
    for row in rows:
        row["row"] += shift
    return rows


def rows_of(decoded: Decoded, shift: int = 0) -> Rows:
    """Returns the rows of each table that has some, with ``row`` moved by ``shift``."""
    tables = {name: _plain(table, shift) for name, table in decoded.tables.items()}
    return {name: rows for name, rows in sorted(tables.items()) if rows}


def first_of_pairs(rows: Rows) -> Rows:
    """Returns the rows of every other message: the batch has a neighbour behind each message under test."""
    pairs = {
        name: [row | {"row": row["row"] // 2} for row in given if row["row"] % 2 == 0]
        for name, given in rows.items()
    }
    return {name: given for name, given in pairs.items() if given}


def sequences_of(decoded: Decoded, shift: int = 0) -> list[dict[str, Any]]:
    """Returns the rows of ``sequences``."""
    return [] if decoded.sequences is None else _plain(decoded.sequences, shift)


def rejections_of(decoded: Decoded, shift: int = 0) -> list[tuple[int, str]]:
    """Returns (row, error) of each rejection, sorted by row."""
    return sorted((rejected.row + shift, rejected.error) for rejected in decoded.rejected)


def passed_over_of(decoded: Decoded, shift: int = 0) -> list[tuple[int, str]]:
    """Returns (row, kind) of each message that was passed over, sorted by row."""
    return sorted((skip.row + shift, skip.kind) for skip in decoded.passed_over)


Outcome = tuple[Rows, list[dict[str, Any]], list[tuple[int, str]], list[tuple[int, str]]]
OUTCOME = ("rows", "sequences", "rejections", "messages that were passed over")


def outcome_of(decoded: Decoded) -> Outcome:
    """Returns all that a decoder says of a batch, as plain values."""
    return rows_of(decoded), sequences_of(decoded), rejections_of(decoded), passed_over_of(decoded)


def in_pieces(decoder: Decoder, rows: pa.RecordBatch, cuts: Sequence[int]) -> Outcome:
    """Decodes a batch cut at these places; returns the outcome, numbered as in the whole batch."""
    tables: Rows = {}
    sequences: list[dict[str, Any]] = []
    rejections: list[tuple[int, str]] = []
    passed_over: list[tuple[int, str]] = []
    places = sorted({0, rows.num_rows, *(cut for cut in cuts if cut <= rows.num_rows)})
    for start, end in pairwise(places):
        decoded = decoder.decode(rows.slice(start, end - start))
        for name, table_rows in rows_of(decoded, start).items():
            tables.setdefault(name, []).extend(table_rows)
        sequences += sequences_of(decoded, start)
        rejections += rejections_of(decoded, start)
        passed_over += passed_over_of(decoded, start)
    return dict(sorted(tables.items())), sequences, sorted(rejections), sorted(passed_over)
