"""Rows of tables made of records: plain values by the names of fields, one record a message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import attrs
import pyarrow as pa

from blumfeld_sink_spark.decoders.schemas.fields import (
    FieldError,
    Source,
    Wishes,
    number,
    sources_of,
    table_of,
    text,
)

NUMBER = pa.decimal256(76, 38)
"""Wide enough for any number that a decimal of the archive may hold; made to fit later."""
_TYPES: Mapping[str, pa.DataType] = {
    "row": pa.int32(),
    "side": pa.int8(),
    "flags": pa.int32(),
    **dict.fromkeys(("is_snapshot", "ts_event_is_recv"), pa.bool_()),
    **dict.fromkeys(("venue", "symbol"), pa.string()),
    **dict.fromkeys(
        ("ts_event", "ts_recv", "trade_id", "update_id", "first_id", "last_id", "prev_id"), pa.int64()
    ),
    **dict.fromkeys(("price", "size", "bid", "bid_size", "ask", "ask_size"), NUMBER),
}
_TIMED = ("ts_event", "ts_event_is_recv", "ts_recv", "venue", "symbol")
_COLUMNS = {
    "trades": (*_TIMED, "trade_id", "side", "price", "size", "flags"),
    "bbo": (*_TIMED, "update_id", "bid", "bid_size", "ask", "ask_size"),
    "book_deltas": (
        *(*_TIMED, "first_id", "last_id", "prev_id"),
        *("side", "price", "size", "is_snapshot", "flags"),
    ),
}
_NEEDED = {"trades": ("price", "size"), "bbo": (), "book_deltas": ()}
_IDS = {
    "trades": ("trade_id", "trade_id"),
    "bbo": ("update_id", "update_id"),
    "book_deltas": ("first_id", "last_id"),
}
_FLAGS_MAX = 2**31
Row = dict[str, Any]


@attrs.frozen
class Message:
    """The values of a message that stand for fields which the record doesn't have."""

    row: int
    key: bytes | None
    topic: str
    timestamp_ns: int


@attrs.frozen
class Shape:
    """Records with the same fields: the table, and where its columns come from."""

    table: str
    sources: dict[str, Source]

    def rows(self, record: Mapping[str, Any], message: Message) -> list[Row]:
        """
        :raises FieldError: the record has no place in the table
        """
        base: Row = {}
        for column, source in self.sources.items():
            if not source.field:
                base[column] = source.constant
            elif (value := record.get(source.field)) is not None:
                base[column] = _converted(source.field, source.convert, value)
        base["ts_event_is_recv"] = "ts_event" not in base
        base.setdefault("ts_event", base.get("ts_recv", message.timestamp_ns))
        base.setdefault("venue", message.topic)
        if "symbol" not in base:
            base["symbol"] = _symbol_of(message.key)
        base["row"] = message.row
        return _SPREAD[self.table](base)


def shape_of(name: str, fields: tuple[str, ...], wishes: Wishes, units: Mapping[str, str]) -> Shape:
    """
    :raises FieldError: no table takes such a record
    """
    table = wishes.table or table_of(name, fields)
    return Shape(table, sources_of(table, fields, wishes, units))


def _converted(field: str, convert: Callable[[Any], Any], value: Any) -> Any:
    try:
        return convert(value)
    except FieldError as error:
        raise FieldError(f"field {field[:80]} {error}") from None


def _symbol_of(key: bytes | None) -> str:
    try:
        return text((key or b"").decode("utf-8"))
    except (FieldError, UnicodeDecodeError):
        raise FieldError("no field says the symbol, and the message's key isn't one") from None


def _trades(base: Row) -> list[Row]:
    _need(base, "price", "size")
    base.setdefault("side", 0)
    return [_checked(base)]


def _bbo(base: Row) -> list[Row]:
    if base.get("bid") is None and base.get("ask") is None:
        raise FieldError("no field says bid or ask")
    return [base]


def _book_deltas(base: Row) -> list[Row]:
    levels = [(side, level) for side, name in ((1, "bids"), (-1, "asks")) for level in base.get(name) or ()]
    base["is_snapshot"] = bool(base.get("is_snapshot"))
    if "bids" not in base and "asks" not in base:
        _need(base, "side", "price", "size")
        return [_checked(base)]
    rest = {column: value for column, value in _checked(base).items() if column not in ("bids", "asks")}
    return [rest | {"side": side} | _level(level) for side, level in levels]


def _level(level: Any) -> Row:
    """``{"price": …, "size": …}`` by these names or aliases, or ``[price, size]``."""
    if isinstance(level, Mapping):
        pair = [next((level[name] for name in names if name in level), None) for names in _LEVEL]
    else:
        pair = list(level[:2]) if isinstance(level, list | tuple) else []
    if len(pair) != 2 or None in pair:
        raise FieldError("a level has no price and size")
    price, size = (_converted("of a level", number, value) for value in pair)
    return {"price": price, "size": size}


_LEVEL = (("price", "px", "rate"), ("size", "qty", "quantity", "amount", "volume"))
_SPREAD: dict[str, Callable[[Row], list[Row]]] = {"trades": _trades, "bbo": _bbo, "book_deltas": _book_deltas}


def _need(base: Row, *columns: str) -> None:
    for column in columns:
        if column not in base:
            raise FieldError(f"no field says the {column}")


def _checked(base: Row) -> Row:
    if not -_FLAGS_MAX <= base.get("flags", 0) < _FLAGS_MAX:
        raise FieldError("flags need more than 32 bits")
    if not isinstance(base.get("price", Decimal()), Decimal):
        raise FieldError("no field says the price")
    return base


def table(name: str, rows: list[Row]) -> pa.Table:
    """Returns the table made of rows that ``Shape.rows`` gave."""
    columns = ["row", *_COLUMNS[name]]
    return pa.table(
        {column: pa.array([row.get(column) for row in rows], _TYPES[column]) for column in columns}
    )


def sequence(name: str, row: Row) -> Row | None:
    """Returns a message's row of ``sequences``, from its first row; None if it has no ids."""
    first, last = (row.get(column) for column in _IDS[name])
    if last is None or (first is not None and first > last):
        return None
    kept = {column: row[column] for column in ("row", "venue", "symbol", "ts_event", "ts_event_is_recv")}
    return (
        kept
        | {"stream": name, "first_id": last if first is None else first, "last_id": last}
        | {"prev_id": row.get("prev_id")}
    )


def sequences(rows: list[Row]) -> pa.Table | None:
    """Returns the table made of rows that ``sequence`` gave."""
    if not rows:
        return None
    names = (
        "row",
        "venue",
        "symbol",
        "stream",
        "first_id",
        "last_id",
        "prev_id",
        "ts_event",
        "ts_event_is_recv",
    )
    return pa.table(
        {name: pa.array([row[name] for row in rows], _TYPES.get(name, pa.string())) for name in names}
    )
