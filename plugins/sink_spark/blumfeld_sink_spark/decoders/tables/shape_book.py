"""The two lists of levels at the end of messages of one shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from blumfeld_sink_spark.decoders.tables.heap import Heap, NoShapeError, Text
from blumfeld_sink_spark.decoders.tables.levels import Book

_BETWEEN = np.uint64(int.from_bytes(b'","', "little"))
_NEXT = np.uint64(int.from_bytes(b'"],["', "little"))
_LAST = np.uint64(int.from_bytes(b'"]]', "little"))
_3, _5 = np.uint64(0xFFFFFF), np.uint64(0xFFFFFFFFFF)


def read_book(heap: Heap, head_quotes: int, begins: Any, second: bytes, tail: bytes) -> Book:
    """Reads two lists of ``["price","size"]``. The first list begins at ``begins`` in each message.

    :raises NoShapeError: the bytes there aren't two such lists
    """
    from_quote = heap.first_quotes + head_quotes
    counts = np.diff(heap.first_quotes, append=len(heap.quotes)) - head_quotes - 2
    if (counts < 0).any() or (counts % 4).any():
        raise NoShapeError
    middle = b'],"%s":[' % second
    keys = np.flatnonzero(heap.data[heap.quotes + 1] == second[0])
    keys = keys[np.searchsorted(keys, from_quote)]  # the first in each message's lists
    if (keys >= from_quote + counts + 2).any():
        raise NoShapeError
    of_key = heap.quotes[keys]
    heap.hold(of_key - np.int32(2), middle)
    firsts, seconds = (keys - from_quote) // 4, (counts - (keys - from_quote)) // 4
    if ((keys - from_quote) % 4).any():
        raise NoShapeError
    heap.hold(heap.ends - np.int32(len(tail)), tail)
    keep = np.ones(len(heap.quotes), bool)
    head = np.repeat(heap.first_quotes, head_quotes) + np.tile(np.arange(head_quotes), len(begins))
    keep[head] = keep[keys] = keep[keys + 1] = False
    quotes = heap.quotes[keep].reshape(-1, 4)
    lists = np.stack([firsts, seconds], axis=1).ravel()
    edges = np.stack(
        [begins, of_key - np.int32(2), of_key + np.int32(len(middle) - 2), heap.ends - np.int32(len(tail))],
        axis=1,
    ).reshape(-1, 2)
    _hold_levels(heap, quotes, lists, edges)
    price, size = (Text(heap, quotes[:, nth] + np.int32(1), quotes[:, nth + 1]) for nth in (0, 2))
    return Book(counts=(firsts, seconds), price=price.decimal_words(), size=size.decimal_words())


def _hold_levels(heap: Heap, quotes: Any, lists: Any, edges: Any) -> None:
    """Hold that each list is its levels with nothing else between its edges: ``[…],[…]``.

    :raises NoShapeError: it isn't
    """
    bare = edges[lists == 0]
    if (bare[:, 0] != bare[:, 1]).any():
        raise NoShapeError
    if not len(quotes):
        return
    full = lists > 0
    last = np.cumsum(lists)[full] - 1
    first = last - lists[full] + 1
    opens, shuts = quotes[:, 0], quotes[:, 3]
    if (opens[first] != edges[full, 0] + 1).any() or (shuts[last] + 2 != edges[full, 1]).any():
        raise NoShapeError
    if (heap.data[opens[first] - 1] != 0x5B).any() or (heap.words[quotes[:, 1]] & _3 != _BETWEEN).any():
        raise NoShapeError
    if (quotes[:, 2] != quotes[:, 1] + 2).any():
        raise NoShapeError
    inner = np.ones(len(quotes), bool)
    inner[last] = False
    after = heap.words[shuts]
    if (after[last] & _3 != _LAST).any() or (after[inner] & _5 != _NEXT).any():
        raise NoShapeError
    follows = np.flatnonzero(inner)
    if (opens[follows + 1] != shuts[follows] + 4).any():
        raise NoShapeError
