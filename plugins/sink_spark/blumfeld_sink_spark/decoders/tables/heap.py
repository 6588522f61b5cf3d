"""The bytes of many messages as one array: texts compared, and values cut out, in all of them at once."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from blumfeld_sink_spark.decoders.tables.columns import words_of
from blumfeld_sink_spark.decoders.tables.digits import NotPlainError, plain_decimals
from blumfeld_sink_spark.decoders.tables.exact import exact

_QUOTE, _BACKSLASH = 0x22, 0x5C
_PAD = 24
"""Bytes before the first message and after the last, so that words can be read at its edges."""


class NoShapeError(Exception):
    """The messages aren't of one shape that can be read here."""


class Heap:
    """The bytes of all messages, one after the other, and the places of their quotes."""

    def __init__(self, data: Any, begins: Any, ends: Any) -> None:
        self.data = data
        self.begins = begins
        self.ends = ends
        self.words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
        self.quotes = np.flatnonzero(data[: ends[-1]] == _QUOTE).astype(np.int32)
        self.first_quotes = np.searchsorted(self.quotes, begins)

    @classmethod
    def of(cls, values: Any) -> Heap:
        """
        :raises NoShapeError: a byte that isn't printable ASCII, or a backslash
        """
        _, offsets, data = values.buffers()
        places = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
        begin, end = int(places[0]), int(places[-1])
        if end == begin:
            raise NoShapeError
        whole = np.empty(end - begin + 2 * _PAD, np.uint8)
        whole[:_PAD] = whole[-_PAD:] = 0x20
        whole[_PAD:-_PAD] = np.frombuffer(data, np.uint8)[begin:end]
        if whole.min() < 0x20 or whole.max() > 0x7E or (whole == _BACKSLASH).any():
            raise NoShapeError
        places = places - np.int32(begin - _PAD)
        return cls(whole, places[:-1], places[1:])

    def sample(self) -> bytes:
        """The first message."""
        return self.data[_PAD : self.ends[0]].tobytes()

    def hold(self, at: Any, text: bytes) -> None:
        """
        :raises NoShapeError: some message hasn't this text at its place
        """
        for begin in range(0, len(text), 8):
            piece = text[begin : begin + 8]
            if len(piece) < 8 <= len(text):
                begin, piece = len(text) - 8, text[-8:]
            got = self.words[at + begin if begin else at]
            if len(piece) < 8:
                got = got & np.uint64((1 << 8 * len(piece)) - 1)
            if (got != np.uint64(int.from_bytes(piece, "little"))).any():
                raise NoShapeError

    def texts(self, begins: Any, ends: Any) -> Any:
        """Returns the bytes between these places as strings. The places grow."""
        offsets = np.empty(2 * len(begins) + 1, np.int32)
        offsets[0:-1:2] = begins
        offsets[1::2] = ends
        offsets[-1] = ends[-1] if len(ends) else 0
        return _every_other(offsets, self.data)


@attrs.frozen
class Text:
    """Strings by their places. Nothing has looked at them yet."""

    heap: Heap
    begins: Any
    ends: Any

    def strings(self) -> Any:
        """Returns an Arrow array of the texts."""
        return self.heap.texts(self.begins, self.ends)

    def decimal_words(self) -> Any:
        """(n, 2) int64: low and high words of them as decimals.

        :raises pyarrow.ArrowInvalid: one is none
        """
        try:
            return plain_decimals(self.heap.data, self.heap.words, self.begins, self.ends)
        except NotPlainError:
            return words_of(exact(self.strings()))


def _every_other(offsets: Any, data: Any) -> Any:
    """Returns the strings between places 0 and 1, 2 and 3, and so on. Bytes between two strings belong to neither."""
    count = len(offsets) - 1
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), count, buffers).take(
        pa.array(np.arange(0, count, 2, dtype=np.int32))
    )
