"""JSON messages to Arrow tables without a Python object for each: the messages of one kind are joined into one
buffer and parsed by ``pyarrow.json`` with a schema of their own.

How a good message survives beside a bad one: the kind of a message is guessed from a few of its bytes; the
messages of one kind are parsed together, and what was guessed is held against what was parsed. Where that fails
the messages are halved until each bad one stands alone; then it is read by itself (``json.loads``) to find its
true kind, or the words that say what is wrong. So the verdict on a message never depends on its neighbours.

Why the joined buffer isn't fooled: each value begins with ``{`` and ends with ``}`` (others are first stripped,
or are no message). If the parser stands outside of all objects where a value begins, the value holds one object
at least. Were it inside one, the ``{`` after our newline would be an error: inside an object it may only follow
``:``, ``,`` or ``[``, and the value before ended with ``}``; inside a string the newline itself is an error. So
as many objects as values means one object each. A newline *between* tokens is whitespace and does no harm, as
the whole buffer is one block.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from blumfeld.spi.decoders import Continuity, Decoded, PassedOver, Rejected
from blumfeld_sink_spark import stamps
from blumfeld_sink_spark.decoders.tables import columns as co
from blumfeld_sink_spark.decoders.tables import shapes
from blumfeld_sink_spark.decoders.tables.columns import BadMessageError, Batch
from blumfeld_sink_spark.decoders.tables.exact import hold_exponents
from blumfeld_sink_spark.decoders.tables.words import plain, plain_json

UNKNOWN = -1
"""The guess for a message whose first bytes fit no kind."""
_NULL = -2
KEEPALIVES: Mapping[bytes, str] = {b"ping": "ping", b"pong": "pong"}
"""Texts that keep a connection alive, in a topic of frames as they came. They are no JSON."""
KIND_CHARS_MAX = 40
"""Longest name of a kind that is passed over, where the message itself says the name."""
_FEW = 4
"""Fewer messages than this aren't worth the looking for their common shape."""
_FAILURES = (BadMessageError, pa.ArrowException, OverflowError, UnicodeDecodeError)


@attrs.frozen
class Parts:
    """The table that the messages of one kind became."""

    tables: dict[str, Any] = attrs.field(factory=dict)
    sequences: Any = None


@attrs.frozen
class Kind:
    """One kind of message: the keys to parse, and the function that makes tables of them."""

    name: str
    schema: Any
    """The types of the keys that are read. Other keys are skipped."""
    read: Callable[[Batch], Parts]
    """Makes tables of a batch.

    :raises BadMessageError: some message of the batch is bad; the error says nothing about the others. Arrow's own
        errors mean the same
    """
    inside: str = ""
    """The key of the object that holds them, where there is an envelope."""
    rewrite: Callable[[Any], Any] | None = None
    """Makes objects of values that are arrays."""
    closed: bool = False
    """True where a key outside ``schema`` is an error. It checks the objects that ``rewrite`` made."""
    has_numbers: bool = False
    """``schema`` has a ``JSON_NUMBER``."""


@attrs.frozen
class _Picked:
    """Messages that are to be read as one kind."""

    kind: int
    rows: Any
    values: Any

    def part(self, begin: int, end: int) -> _Picked:
        return _Picked(self.kind, self.rows[begin:end], self.values.slice(begin, end - begin))


class JsonDecoder:
    """The base of the exchanges' decoders. Pickles by its class alone."""

    name = ""
    version = 2
    tables: Sequence[str] = ()
    continuity: Mapping[str, Continuity] = {}
    kinds: Sequence[Kind] = ()
    texts: Mapping[bytes, str] = KEEPALIVES
    """Texts that aren't this venue's JSON and are passed over, and a word for each."""

    def guess(self, values: Any) -> Any:
        """int8: the kind of each value by its bytes, or ``UNKNOWN``. May be wrong, never slow; nulls are any."""
        return np.full(len(values), UNKNOWN, np.int8)

    def kind_of(self, message: Any, text: bytes) -> int | str:
        """The true kind of one parsed message; a word for it if it is one that is passed over.

        :raises BadMessageError: it is none that this decoder knows
        """
        raise NotImplementedError

    def __reduce__(self) -> Any:
        return (type(self), ())

    def decode(self, rows: Any) -> Decoded:
        """See :class:`blumfeld.spi.decoders.Decoder`."""
        return _Run(self, rows).decoded()


def guess_by_prefix(values: Any, prefixes: Mapping[str, int]) -> Any:
    """Returns an int8 array: for each value the kind whose prefix it has, or ``UNKNOWN``."""
    codes = np.full(len(values), UNKNOWN, np.int8)
    for prefix, code in prefixes.items():
        codes[pc.fill_null(pc.starts_with(values, prefix), False).to_numpy(zero_copy_only=False)] = code
    return codes


class _Run:
    """One batch on its way through a decoder."""

    def __init__(self, decoder: JsonDecoder, rows: Any) -> None:
        self._decoder = decoder
        self._values = rows.column("value").cast(pa.binary())
        self._keys = rows.column("key").cast(pa.binary())
        self._stamps = stamps.kafka_ns(rows).to_numpy()
        self._parts: list[Parts] = []
        self._rejected: list[Rejected] = []
        self._passed_over: list[PassedOver] = []

    def decoded(self) -> Decoded:
        if len(self._values):
            for picked in self._groups():
                self._read(picked)
        self._rejected.sort(key=lambda rejected: rejected.row)
        names = sorted({name for parts in self._parts for name in parts.tables})
        tables = {
            name: _in_order([p.tables[name] for p in self._parts if name in p.tables]) for name in names
        }
        numbered = [parts.sequences for parts in self._parts if parts.sequences is not None]
        return Decoded(
            tables=tables,
            sequences=_in_order(numbered) if numbered else None,
            rejected=tuple(self._rejected),
            passed_over=tuple(self._passed_over),
        )

    def _groups(self) -> Iterable[_Picked]:
        values = self._values
        codes = self._decoder.guess(values)
        if values.null_count:
            codes[~np.asarray(values.is_valid())] = _NULL
        first = codes[0]
        if first >= 0 and (codes == first).all():
            yield _Picked(int(first), np.arange(len(values), dtype=np.int32), values)
            return
        for code in np.unique(codes):
            at = np.flatnonzero(codes == code).astype(np.int32)
            if code >= 0:
                yield _Picked(int(code), at, values.take(pa.array(at)))
            elif code == UNKNOWN:
                yield from self._told_apart(at)

    def _told_apart(self, rows: Any) -> Iterable[_Picked]:
        """Messages that no bytes told apart, by parsing each: slow, and as right as can be."""
        by_kind: dict[int, tuple[list[int], list[bytes]]] = {}
        for row in rows.tolist():
            kind, text = self._alone(row)
            if kind is not None:
                at, texts = by_kind.setdefault(kind, ([], []))
                at.append(row)
                texts.append(text)
        for kind, (at, texts) in sorted(by_kind.items()):
            yield _Picked(kind, np.array(at, np.int32), pa.array(texts, pa.binary()))

    def _alone(self, row: int) -> tuple[int | None, bytes]:
        """The true kind of one message and its text; rejected or passed over: no kind."""
        text = self._values[row].as_py().strip(b" \t\r\n")
        try:
            known = self._decoder.texts.get(text.strip(b'"'))
            kind = known or self._decoder.kind_of(_loads(text), text)
        except BadMessageError as error:
            self._reject(row, str(error))
            return None, text
        if isinstance(kind, str):
            self._passed_over.append(PassedOver(row, kind[:KIND_CHARS_MAX]))
            return None, text
        return kind, text

    def _read(self, picked: _Picked) -> None:
        try:
            self._take(picked)
        except _FAILURES as error:
            size = len(picked.rows)
            if size > 1:
                self._read(picked.part(0, size // 2))
                self._read(picked.part(size // 2, size))
            else:
                self._last_resort(picked, error)

    def _last_resort(self, picked: _Picked, error: Exception) -> None:
        """One message that isn't of the kind that it was taken for."""
        row = int(picked.rows[0])
        rejected = len(self._rejected)
        kind, text = self._alone(row)
        if kind is None or len(self._rejected) > rejected:
            return
        if kind == picked.kind and text == picked.values[0].as_py():
            self._reject(row, f"{self._decoder.kinds[kind].name}: {plain(str(error), text)}")
            return
        again = _Picked(kind, picked.rows, pa.array([text], pa.binary()))
        try:
            self._take(again)
        except _FAILURES as other:
            self._reject(row, f"{self._decoder.kinds[kind].name}: {plain(str(other), text)}")

    def _take(self, picked: _Picked) -> None:
        """Reads messages as their kind. A message without content (an update without levels) is passed over.

        :raises BadMessageError: (or Arrow's own) as in ``Kind.read``; no message was taken
        """
        kind = self._decoder.kinds[picked.kind]
        parts = kind.read(self._batch(picked))
        self._parts.append(parts)
        there = np.zeros(len(self._values), np.bool_)
        for table in parts.tables.values():
            there[np.asarray(table.column("row"))] = True
        for row in picked.rows[~there[picked.rows]].tolist():
            self._passed_over.append(PassedOver(row, f"{kind.name} without a row"))

    def _batch(self, picked: _Picked) -> Batch:
        kind = self._decoder.kinds[picked.kind]
        values = picked.values if kind.rewrite is None else kind.rewrite(picked.values)
        whole = len(picked.rows) == len(self._values)
        return Batch(
            columns=_parsed(values, kind),
            rows=picked.rows,
            stamps=self._stamps if whole else self._stamps[picked.rows],
            keys=self._keys if whole else self._keys.take(pa.array(picked.rows)),
            venue=self._decoder.name,
        )

    def _reject(self, row: int, error: str) -> None:
        self._rejected.append(Rejected(row, " ".join(error.split())[:300]))


def _parsed(values: Any, kind: Kind) -> dict[str, Any]:
    """Columns of values that are one object each: by their common shape, or else by the parser.

    :raises BadMessageError: some value isn't
    :raises pyarrow.ArrowInvalid: the same, in Arrow's words
    """
    shaped = None if kind.rewrite or len(values) < _FEW else shapes.read(values, kind.schema, kind.inside)
    return _by_parser(values, kind) if shaped is None else shaped


def _by_parser(values: Any, kind: Kind) -> dict[str, Any]:
    if not (co.every(pc.starts_with(values, "{")) and co.every(pc.ends_with(values, "}"))):
        raise BadMessageError("is no JSON object")
    values.cast(pa.string())  # Arrow's parser lets bytes pass that are no UTF-8
    if kind.has_numbers:
        hold_exponents(values)
    whole = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    joined = pc.binary_join(whole, b"\n")[0].as_buffer()
    table = pj.read_json(
        pa.BufferReader(joined),
        read_options=pj.ReadOptions(use_threads=False, block_size=joined.size + 1),
        parse_options=pj.ParseOptions(
            explicit_schema=kind.schema, unexpected_field_behavior="error" if kind.closed else "ignore"
        ),
    )
    if table.num_rows != len(values):
        raise BadMessageError("is more than one JSON object")
    columns = {name: _one(table.column(name)) for name in kind.schema.names}
    if kind.inside:
        inner = columns.pop(kind.inside)
        if inner.null_count:
            raise BadMessageError(f"{kind.inside} is missing or null")
        columns.update(zip((field.name for field in inner.type), inner.flatten(), strict=True))
    return columns


def _one(column: Any) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _in_order(tables: Sequence[Any]) -> Any:
    """Returns one table, sorted by the row of the message. The sort is stable."""
    if len(tables) == 1:
        return tables[0]
    table = pa.concat_tables(tables, promote_options="default").combine_chunks()
    rows = table.column("row").to_numpy()
    if len(rows) < 2 or (np.diff(rows) >= 0).all():
        return table
    return table.take(pa.array(np.argsort(rows, kind="stable")))


def _loads(text: bytes) -> Any:
    """One JSON text.

    :raises BadMessageError: it is none, with the place
    """
    if not text:
        raise BadMessageError("the value is empty")
    try:
        return json.loads(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise BadMessageError(f"no UTF-8: byte 0x{text[error.start]:02x} at {error.start}") from error
    except json.JSONDecodeError as error:
        raise BadMessageError(plain_json(error)) from error
    except (ValueError, RecursionError) as error:
        raise BadMessageError(f"no JSON that can be read: {error}") from error
