"""Fits a decoder's table to the archive's: types, columns that may not be null, and symbols, which name folders.

Whole columns are cast at once. Single values are looked at only in a column that doesn't fit; their messages are
returned as faults and rejected whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from blumfeld_sink_spark.decoders.tables.columns import every
from blumfeld_sink_spark.decoders.tables.exact import exact
from blumfeld_sink_spark.errors import ArchiveError

FILLED_IN = ("row", "k_partition", "k_offset", "offset")
"""Columns that the archive fills in. It also fills in ``ts_recv`` where the decoder has none."""
_DIGITS_128, _DIGITS_256 = 38, 76
"""Decimal digits that Arrow's two widths of decimals hold."""
SYMBOL_BYTES_MAX = 80
"""Longest symbol. A byte takes three characters percent-encoded in a path, and a folder's name may have 255."""

Faults = dict[int, str]
"""The first fault of each message, by its index in the piece that the decoder got."""


def fit(name: str, given: pa.Table, schema: pa.Schema, faults: Faults) -> dict[str, Any]:
    """Returns the columns of ``schema``, cast. Values that don't fit become null; their messages go into ``faults``.

    :raises ArchiveError: the decoder itself is wrong: an unknown column, a missing one that may not be null, or a type
        that can't become the table's
    """
    unknown = sorted(set(given.column_names) - set(schema.names) - {"row"})
    if unknown:
        raise ArchiveError(
            f"table {name} has no columns {', '.join(unknown)}; allowed: {', '.join(schema.names)}"
        )
    row = given.column("row")
    fitted = {}
    for field in schema:
        if field.name in FILLED_IN:
            continue
        if field.name == "ts_recv":
            if field.name in given.column_names:
                fitted[field.name] = cast("ts_recv", given.column(field.name), field.type, row, faults)
            continue
        if field.name not in given.column_names:
            if not field.nullable and given.num_rows:
                raise ArchiveError(f"table {name} needs the column {field.name}, which may not be null")
            fitted[field.name] = pa.nulls(given.num_rows, field.type)
            continue
        fitted[field.name] = _column(f"{name}.{field.name}", given.column(field.name), field, row, faults)
    return fitted


def row_column(name: str, given: pa.Table) -> pa.Array:
    """Returns the column ``row`` as one array, without a copy if it has one chunk.

    :raises ArchiveError: there is no such column, or it doesn't hold integers
    """
    if "row" not in given.column_names or not pa.types.is_integer(given.schema.field("row").type):
        raise ArchiveError(f"table {name} has no column row of integers")
    row = given.column("row")
    return row.chunk(0) if row.num_chunks == 1 else row.combine_chunks()


def check_rows(name: str, row: pa.Array, messages: int) -> None:
    """Checks the column ``row`` of a table that a decoder made of so many messages.

    :raises ArchiveError: a row is null or names no message
    """
    bounds = pc.min_max(row).as_py()
    if row.null_count or (len(row) and not 0 <= bounds["min"] <= bounds["max"] < messages):
        raise ArchiveError(f"table {name} has a row whose message isn't in the batch of {messages}")


def known_or(brought: Any, known: pa.Array) -> Any:
    """Returns ``brought``, with ``known`` in place of its nulls."""
    return pc.coalesce(brought, known) if brought.null_count else brought


def _column(place: str, column: Any, field: pa.Field, row: Any, faults: Faults) -> Any:
    column = cast(place, column, field.type, row, faults)
    if not field.nullable and column.null_count:
        _blame(row.filter(column.is_null()), f"{place} is missing", faults)
    if field.name == "symbol":
        _check_symbols(place, column, row, faults)
    return column


def cast(place: str, column: Any, wanted: pa.DataType, row: Any, faults: Faults) -> Any:
    """Casts ``column`` to ``wanted``. Values that don't fit become null; their messages go into ``faults``.

    :raises ArchiveError: the type can't become ``wanted``
    """
    if column.type == wanted:
        return column
    if pa.types.is_integer(column.type) and pa.types.is_decimal(wanted):
        column = column.cast(
            pa.decimal128(20, 0)
        )  # Arrow refuses by the digits that the integer type might hold, whatever the values
    try:
        return _exactly(column, wanted)
    except pa.ArrowNotImplementedError as error:
        raise ArchiveError(f"{place}: {column.type} can't become {wanted}") from error
    except pa.ArrowInvalid:
        fits = _fits(column, wanted)
        _blame(row.filter(pc.invert(fits)), f"{place} does not fit {wanted}", faults)
        return _exactly(pc.if_else(fits, column, pa.scalar(None, column.type)), wanted)


def _exactly(column: Any, wanted: pa.DataType) -> Any:
    """Casts ``column`` to ``wanted`` without rounding or overflow.

    Arrow's cast to a larger scale multiplies in the width of the source type and may wrap without an error. So such a
    source is checked or widened first.

    :raises pa.ArrowInvalid: a value doesn't fit
    """
    if pa.types.is_decimal(wanted) and pa.types.is_string(column.type):
        pieces = [exact(piece, wanted) for piece in column.chunks]
        return pa.chunked_array(pieces, wanted)
    if pa.types.is_decimal(wanted) and pa.types.is_decimal(column.type):
        digits = column.type.precision + max(wanted.scale - column.type.scale, 0)
        if digits > _DIGITS_256 and not every(_fits(column, wanted)):
            raise pa.ArrowInvalid(f"a number does not fit {wanted}")
        if digits > _DIGITS_128:
            column = column.cast(pa.decimal256(_DIGITS_256, column.type.scale))
    return column.cast(wanted)


def _fits(column: Any, wanted: pa.DataType) -> Any:
    """Returns for each value whether it can be cast."""
    if pa.types.is_decimal(column.type) and pa.types.is_decimal(wanted):
        wide = column.cast(pa.decimal256(76, column.type.scale))
        whole_digits = wanted.precision - wanted.scale
        # Towards zero: Arrow refuses to round 76 digits up, because that may take a 77th.
        rounded = pc.round(wide, ndigits=wanted.scale, round_mode="towards_zero")
        fits = pc.equal(rounded, wide)
        if (
            whole_digits + column.type.scale < _DIGITS_256
        ):  # otherwise no value of the type has more whole digits
            limit = pa.scalar(Decimal(10) ** whole_digits, pa.decimal256(whole_digits + 1, 0))
            fits = pc.and_(pc.less(pc.abs(wide), limit), fits)
        return pc.fill_null(fits, True)
    return pa.chunked_array([pa.array(list(_each_fits(column, wanted)), pa.bool_())])


def _each_fits(column: Any, wanted: pa.DataType) -> Iterator[bool]:
    """Yields for each value whether it can be cast. Tries by halves, so that one bad value among many costs little."""
    try:
        _exactly(column, wanted)
    except pa.ArrowInvalid:
        if len(column) == 1:
            yield False
            return
        half = len(column) // 2
        yield from _each_fits(column.slice(0, half), wanted)
        yield from _each_fits(column.slice(half), wanted)
    else:
        for _ in range(len(column)):
            yield True


def _check_symbols(place: str, column: Any, row: Any, faults: Faults) -> None:
    length = pc.binary_length(column)
    bounds = pc.min_max(length).as_py()
    if bounds["min"] is None or (bounds["min"] > 0 and bounds["max"] <= SYMBOL_BYTES_MAX):
        return
    bad = pc.or_(pc.equal(length, 0), pc.greater(length, SYMBOL_BYTES_MAX))
    _blame(
        row.filter(pc.fill_null(bad, False)),
        f"{place} is empty or longer than {SYMBOL_BYTES_MAX} bytes",
        faults,
    )


def _blame(rows: Any, error: str, faults: Faults) -> None:
    for row in pc.unique(rows).to_pylist():
        faults.setdefault(row, error)
