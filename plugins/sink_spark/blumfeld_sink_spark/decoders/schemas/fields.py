"""The mapping from a record's fields to a table's columns, by name and by value.

A column is taken from the field of its own name or of an alias; case and underscores don't count (``eventTime`` is
``event_time``). ``confluent:TABLE?column=field`` overrules this, ``column=:text`` gives the column a constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qsl

import attrs

from blumfeld.spi.decoders import Continuity
from blumfeld_sink_spark.decoders.schemas.protobuf import Nanos
from blumfeld_sink_spark.decoders.tables.exact import NUMBER_TEXT
from blumfeld_sink_spark.errors import SettingsError

TIME_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1000, "ns": 1}
_SUFFIXES = {"ms": "ms", "millis": "ms", "us": "us", "micros": "us", "ns": "ns", "nanos": "ns"}
_INT64 = 2**63
_DIGITS_MAX = 38

_TIMES: Mapping[str, tuple[str, ...]] = {
    "ts_event": (
        "event_time",
        "event_ts",
        "exchange_time",
        "exchange_ts",
        "transact_time",
        "timestamp",
        "time",
        "ts",
    ),
    "ts_recv": ("recv", "recv_time", "receive_time", "received_at", "local_timestamp", "local_ts"),
}
_WHERE: Mapping[str, tuple[str, ...]] = {
    "venue": ("exchange", "market", "source"),
    "symbol": ("instrument", "ticker", "pair", "product_id", "product"),
}
_LEVEL: Mapping[str, tuple[str, ...]] = {
    "price": ("px", "rate"),
    "size": ("qty", "quantity", "amount", "volume"),
}
ALIASES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "trades": {
        **_TIMES,
        **_WHERE,
        **_LEVEL,
        "trade_id": ("tid", "match_id", "id"),
        "side": ("aggressor_side", "aggressor", "taker_side", "direction"),
        "flags": (),
    },
    "bbo": {
        **_TIMES,
        **_WHERE,
        "update_id": ("sequence", "seq", "id"),
        "bid": ("bid_price", "bid_px", "best_bid", "best_bid_price"),
        "bid_size": ("bid_qty", "bid_quantity", "bid_sz", "bid_amount", "best_bid_size", "best_bid_qty"),
        "ask": ("ask_price", "ask_px", "best_ask", "best_ask_price", "offer"),
        "ask_size": ("ask_qty", "ask_quantity", "ask_sz", "ask_amount", "best_ask_size", "best_ask_qty"),
    },
    "book_deltas": {
        **_TIMES,
        **_WHERE,
        **_LEVEL,
        "first_id": ("first_update_id",),
        "last_id": ("last_update_id", "update_id", "sequence", "seq"),
        "prev_id": ("prev_update_id", "previous_id"),
        "side": (),
        "is_snapshot": ("snapshot",),
        "flags": (),
        "bids": ("bid_levels", "buys"),
        "asks": ("ask_levels", "sells", "offers"),
    },
}
"""Table → column → other names of it; ``bids`` and ``asks`` hold levels."""

_NAMES = {
    "trades": ("trade", "fill", "execution"),
    "bbo": ("bbo", "quote", "ticker", "topofbook", "bestbidask"),
    "book_deltas": ("depth", "book", "level", "l2"),
}
_SIDES = {"B": 1, "BUY": 1, "BID": 1, "1": 1, "S": -1, "SELL": -1, "A": -1, "ASK": -1, "OFFER": -1, "-1": -1}
_NO_SIDES = ("", "0", "N", "NONE", "UNKNOWN", "UNSPECIFIED")


class FieldError(Exception):
    """A record that has no place in a table; one line, without its values."""


def bare(name: str) -> str:
    """Returns the part of a name that is compared."""
    return name.replace("_", "").replace("-", "").lower()


@attrs.frozen
class Wishes:
    """The choices in a decoder's name that overrule the aliases."""

    table: str = ""
    """Empty: found by the record's name and fields."""
    fields: Mapping[str, str] = {}
    """Column → field, ``field@unit`` (a time's ``s``, ``ms``, ``us``, ``ns``; a number's decimal places), or
    ``:constant``.
    """
    check: Continuity = Continuity.NONE
    """The relation between the ids of its messages."""


def wishes_of(arguments: str) -> Wishes:
    """``TABLE?column=field&column=:constant&check=consecutive``.

    :raises SettingsError: a table or column that there isn't
    """
    table, _, query = arguments.partition("?")
    if table and table not in ALIASES:
        raise SettingsError(
            f"archive.decoders: no record fills the table {table!r}; allowed: {', '.join(ALIASES)}"
        )
    fields = dict(parse_qsl(query.replace("+", "%2B"), keep_blank_values=True))
    check = fields.pop("check", "none")
    if check not in {rule.value for rule in Continuity}:
        allowed = ", ".join(rule.value for rule in Continuity)
        raise SettingsError(f"archive.decoders: check={check}; allowed: {allowed}")
    known = ALIASES[table] if table else {name for columns in ALIASES.values() for name in columns}
    for column, wish in fields.items():
        if column not in known:
            raise SettingsError(
                f"archive.decoders: no column {column!r}; allowed: {', '.join(sorted(known))}"
            )
        try:
            _wished(column, wish, {})
        except FieldError as error:
            raise SettingsError(f"archive.decoders: {column}={wish}: {wish[1:]!r} {error}") from error
    return Wishes(table, fields, Continuity(check))


@attrs.frozen
class Source:
    """The source of one column."""

    field: str
    convert: Callable[[Any], Any]
    constant: Any = None


def table_of(name: str, fields: Sequence[str]) -> str:
    """Returns the table by the record's name, else by the columns that its fields are.

    :raises FieldError: none
    """
    for table, words in _NAMES.items():
        if any(word in bare(name) for word in words):
            return table
    for table, needed in (("book_deltas", "bids"), ("bbo", "bid"), ("bbo", "ask"), ("trades", "price")):
        if _field_of(needed, ALIASES[table][needed], fields):
            return table
    raise FieldError(f"no table is known for the record {name[:80]}: say confluent:TABLE")


def sources_of(
    table: str, fields: Sequence[str], wishes: Wishes, units: Mapping[str, str]
) -> dict[str, Source]:
    """The columns that the record has; ``units`` are those that its schema knows of fields that are times."""
    sources = {}
    for column, aliases in ALIASES[table].items():
        wish = wishes.fields.get(column)
        if wish is not None:
            source = _wished(column, wish, units)
            if not source.field or source.field in fields:
                sources[column] = source
            continue
        field = _field_of(column, aliases, fields)
        if field is not None:
            sources[column] = Source(field, _converter(column, _unit(column, field, units)))
    return sources


def _wished(column: str, wish: str, units: Mapping[str, str]) -> Source:
    if wish.startswith(":"):
        convert = _converter(column, "")
        return Source("", convert, convert(wish[1:]))
    field, _, unit = wish.partition("@")
    return Source(field, _converter(column, unit or _unit(column, field, units)))


def _unit(column: str, field: str, units: Mapping[str, str]) -> str:
    return (units.get(field) or _suffix(field)) if column in _TIMES else ""


def _field_of(column: str, aliases: Sequence[str], fields: Sequence[str]) -> str | None:
    by_name = {_unsuffixed(field) if column in _TIMES else bare(field): field for field in reversed(fields)}
    return next((by_name[bare(name)] for name in (column, *aliases) if bare(name) in by_name), None)


def _suffix(field: str) -> str:
    return _SUFFIXES.get(field.rpartition("_")[2].lower(), "")


def _unsuffixed(field: str) -> str:
    return bare(field.rpartition("_")[0] if _suffix(field) else field)


def _converter(column: str, unit: str) -> Callable[[Any], Any]:
    if column in _TIMES:
        return _time(unit)
    if column in ("venue", "symbol"):
        return text
    if column in ("trade_id", "update_id", "first_id", "last_id", "prev_id", "flags"):
        return integer
    if column == "side":
        return side
    if column in ("bids", "asks"):
        return levels
    if column == "is_snapshot":
        return boolean
    return _number(unit)


def _time(unit: str) -> Callable[[Any], int]:
    factor = TIME_NS.get(unit or "ns")
    if factor is None:
        raise SettingsError(f"archive.decoders: a time in {unit!r}; allowed: {', '.join(TIME_NS)}")

    def convert(value: Any) -> int:
        return integer(value if isinstance(value, Nanos) else integer(value) * factor)

    return convert


def integer(value: Any) -> int:
    """Returns an integer of 64 bits, also from a text of digits."""
    if (
        isinstance(value, str)
        and len(value) <= 20
        and value.isascii()
        and value.removeprefix("-").isdecimal()
    ):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not -_INT64 <= value < _INT64:
        raise FieldError("is no integer of 64 bits")
    return int(value)


def text(value: Any) -> str:
    """Some, not empty."""
    if not isinstance(value, str | int) or value == "":
        raise FieldError("is no text")
    return str(value)


def side(value: Any) -> int:
    """1 buy or bid, -1 sell or ask, 0 unknown."""
    word = str(value).upper().removeprefix("SIDE_")
    if value is None or word in _NO_SIDES:
        return 0
    if word not in _SIDES:
        raise FieldError("is no side")
    return _SIDES[word]


def levels(value: Any) -> list[Any]:
    """One or none after another."""
    if not isinstance(value, list):
        raise FieldError("is no array of levels")
    return value


def boolean(value: Any) -> bool:
    """Returns a boolean. The texts ``true`` and ``false`` count as booleans, too."""
    if isinstance(value, bool):
        return value
    if value not in ("true", "false"):
        raise FieldError("is neither true nor false")
    return bool(value == "true")


def _number(places: str) -> Callable[[Any], Decimal]:
    if places and not places.isdecimal():
        raise SettingsError(
            f"archive.decoders: a number @{places}; allowed: how many digits are decimal places"
        )
    shift = -int(places or 0)

    def convert(value: Any) -> Decimal:
        return number(value, shift)

    return convert


def number(value: Any, shift: int = 0) -> Decimal:
    """Returns the exact number. A float gives the shortest decimal that reads back as that float.

    A text must match ``NUMBER_TEXT``, as in the exchanges' decoders. Python's Decimal alone would accept ``1_000``,
    spaces and the digits of other scripts.
    """
    if isinstance(value, float):
        value = repr(value) if math.isfinite(value) else "not finite"
    if (
        isinstance(value, bool)
        or not isinstance(value, int | str | Decimal)
        or len(str(value)) > 2 * _DIGITS_MAX
        or (isinstance(value, str) and not NUMBER_TEXT.fullmatch(value))
    ):
        raise FieldError("is no number")
    try:
        made = Decimal(value)
        exponent = made.as_tuple().exponent
    except ArithmeticError as error:
        raise FieldError("is no number") from error
    if (
        not isinstance(exponent, int)
        or exponent + shift < -_DIGITS_MAX
        or made.adjusted() + shift >= _DIGITS_MAX
    ):
        raise FieldError("is no number that a decimal holds")
    return shifted(made, shift)


def shifted(value: Decimal, places: int) -> Decimal:
    """``value`` times ``10**places``, exactly: ``scaleb`` would round to the digits of the context."""
    sign, digits, exponent = value.as_tuple()
    return Decimal((sign, digits, int(exponent) + places))
