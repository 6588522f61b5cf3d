"""Columns out of parsed messages, whole arrays at a time.

Every function here raises :class:`BadMessageError` for a batch in which *some* message is bad.
:mod:`blumfeld_sink_spark.decoders.tables.json_table` halves the batch until it has found that message.
"""

from __future__ import annotations

from typing import Any, Protocol

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blumfeld_sink_spark.decoders.tables.exact import DECIMAL, exact

_MICROSECONDS_FROM = 10**14
"""Times at or above this are microseconds: as milliseconds they would lie in the year 5138."""
_LAST_MS = 9_223_372_036_854
_LAST_US = 9_223_372_036_854_775


class BadMessageError(Exception):
    """The decoder can't read some message of a batch. The text is one line that says what is wrong."""


class LateStrings(Protocol):
    """A column of strings without nulls. The strings are made on request."""

    def strings(self) -> Any:
        """Returns an Arrow array of strings."""
        ...

    def decimal_words(self) -> Any:
        """Returns the strings as decimals: an (n, 2) int64 array of low and high words.

        :raises pyarrow.ArrowInvalid: a string is not a decimal
        """
        ...


@attrs.frozen
class Times:
    """The times of messages, some of which may be those of receipt."""

    ns: Any
    """int64."""
    is_recv: Any
    """True where the message names no time: one for all, or an array of booleans."""

    @classmethod
    def of(cls, times: Any) -> Times:
        """Returns ``times``, which are the venue's if they are an array."""
        return times if isinstance(times, cls) else cls(times, False)


@attrs.frozen
class Batch:
    """Parsed messages of one kind, in the order of their rows."""

    columns: dict[str, Any]
    """Columns by the message's own keys: arrays, or :class:`LateStrings`, or sides of a book (see ``levels``)."""
    rows: Any
    """int32: each message's place in the batch that is decoded, growing."""
    stamps: Any
    """int64 ns: the timestamps of the records."""
    keys: Any
    """The keys of the records: a binary array."""
    venue: str

    def __len__(self) -> int:
        return len(self.rows)

    def received(self) -> Times:
        """Returns the times of receipt, for messages that name none."""
        return Times(self.stamps, True)

    def exploded(self, name: str) -> tuple[Batch, Any]:
        """Returns a batch of the elements of a list of objects, and for each element the index of its message here."""
        lists = self.need(name)
        elements = lists.flatten()
        if elements.null_count:
            raise BadMessageError(f"an element of {name} is null")
        message = np.repeat(np.arange(len(self)), list_counts(lists))
        columns = dict(zip((field.name for field in elements.type), elements.flatten(), strict=True))
        keys = self.keys.take(pa.array(message))
        return Batch(columns, self.rows[message], self.stamps[message], keys, self.venue), message

    def fields(self, name: str) -> Batch:
        """A batch of the objects under a key, one for each message."""
        inner = self.need(name)
        columns = dict(zip((field.name for field in inner.type), inner.flatten(), strict=True))
        return Batch(columns, self.rows, self.stamps, self.keys, self.venue)

    def has(self, name: str) -> bool:
        """Returns True where all messages have this key, False where none has.

        :raises BadMessageError: only some have it
        """
        column = self.column(name)
        if 0 < column.null_count < len(column):
            raise BadMessageError(f"{name} is there in some messages only")
        return len(column) > 0 and column.null_count == 0

    def column(self, name: str) -> Any:
        """A column as Arrow has it."""
        column = self.columns[name]
        return column if isinstance(column, pa.Array) else column.strings()

    def need(self, name: str) -> Any:
        """A column without nulls."""
        column = self.column(name)
        if column.null_count:
            raise BadMessageError(f"{name} is missing or null")
        return column

    def integers(self, name: str) -> Any:
        """A column of int64 as a numpy array, or of strings that hold one."""
        column = self.need(name)
        if pa.types.is_string(column.type):
            column = column.cast(pa.int64())
        return column.to_numpy(zero_copy_only=False)

    def flags(self, name: str) -> Any:
        """A column of booleans as a numpy array."""
        return self.need(name).to_numpy(zero_copy_only=False)

    def decimals(self, name: str) -> Any:
        """A column of decimal strings, exactly."""
        column = self.columns[name]
        if isinstance(column, pa.Array):
            return exact(self.need(name))
        return decimals_of(column.decimal_words())

    def symbols(self, name: str) -> Any:
        """A column of names: none is empty."""
        column = self.need(name)
        if pc.any(pc.equal(column, "")).as_py():
            raise BadMessageError(f"{name} is empty")
        return column

    def constant(self, name: str, value: str) -> None:
        """Hold that a column is this word everywhere."""
        column = self.need(name)
        if not every(pc.equal(column, value)):
            raise BadMessageError(f"{name} is not {value!r}")

    def key_symbols(self) -> Any:
        """Returns the symbols in the records' keys, upper case: for messages that name no symbol themselves."""
        if self.keys.null_count:
            raise BadMessageError("names no symbol, and the record has no key that would")
        names = pc.utf8_upper(pc.utf8_trim_whitespace(self.keys.cast(pa.string())))
        if pc.any(pc.equal(names, "")).as_py():
            raise BadMessageError("names no symbol, and the record's key is empty")
        return names

    def time_ns(self, name: str) -> Any:
        """Milliseconds (or microseconds, where they can't be milliseconds) since the epoch, in ns."""
        return nanoseconds(self.integers(name), name)


def nanoseconds(times: Any, name: str) -> Any:
    """Returns times in ns. ``times`` are int64 ms since the epoch, or µs where they are too great for ms.

    :raises BadMessageError: a time is negative, or doesn't fit into int64 as ns
    """
    if not len(times):
        return times
    if times.min() < 0 or times.max() > _LAST_US:
        raise BadMessageError(f"{name} is no time")
    fine = times >= _MICROSECONDS_FROM
    if not fine.any():
        if times.max() > _LAST_MS:
            raise BadMessageError(f"{name} is no time")
        return times * 1_000_000
    return np.where(fine, times * 1_000, times * np.where(fine, 0, 1_000_000))


def iso_ns(texts: Any, name: str) -> Any:
    """``2021-04-17T16:43:37.077621Z`` in int64 ns.

    :raises BadMessageError: no such time, or none with its zone
    """
    try:
        parsed = texts.cast(pa.timestamp("ns", tz="UTC"))
    except pa.ArrowInvalid as error:
        raise BadMessageError(f"{name} is no ISO 8601 time with a zone") from error
    return parsed.cast(pa.int64()).to_numpy(zero_copy_only=False)


def seconds_ns(texts: Any) -> Any:
    """``1618678147.930485`` in int64 ns, exactly."""
    words = exact(texts, pa.decimal128(28, 9))
    nanos = words_of(words)
    if len(nanos) and (nanos[:, 1].any() or (nanos[:, 0] < 0).any()):
        raise BadMessageError("a time in seconds is out of range")
    return nanos[:, 0].copy()


def words_of(decimals: Any) -> Any:
    """(n, 2) int64: low and high words of decimals without nulls."""
    return np.frombuffer(decimals.buffers()[1], np.int64)[
        2 * decimals.offset : 2 * (decimals.offset + len(decimals))
    ].reshape(-1, 2)


def decimals_of(words: Any) -> Any:
    """Decimals of (n, 2) int64 words."""
    return pa.Array.from_buffers(DECIMAL, len(words), [None, pa.py_buffer(np.ascontiguousarray(words))])


def every(flags: Any) -> bool:
    """Returns True where no flag is false, also where there is none: of nothing ``pc.all`` says null by itself."""
    return bool(pc.all(flags, min_count=0).as_py())


def null_if_zero(price: Any, size: Any) -> tuple[Any, Any]:
    """One side of a best bid and ask; null where the venue says that it is empty by a price of 0."""
    empty = ~words_of(price).any(axis=1)
    if not empty.any():
        return price, size
    mask = pa.array(~empty)
    return pc.if_else(mask, price, None), pc.if_else(mask, size, None)


def list_counts(lists: Any) -> Any:
    """Returns the number of elements of each list. The lists have no nulls."""
    offsets = np.frombuffer(lists.buffers()[1], np.int32)[lists.offset : lists.offset + len(lists) + 1]
    return np.diff(offsets)
