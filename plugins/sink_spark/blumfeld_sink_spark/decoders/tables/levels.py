"""Levels of books out of lists: flat, in the order of their messages."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blumfeld_sink_spark.decoders.tables.columns import BadMessageError, decimals_of, list_counts, words_of
from blumfeld_sink_spark.decoders.tables.exact import exact, narrowed


@attrs.frozen
class Levels:
    """Levels of a book, flat, in the order of their messages: each message's bids, then its asks."""

    message: Any
    """int64: the message's place in the parsed batch."""
    side: Any
    price: Any
    size: Any


@attrs.frozen
class Book:
    """Two lists of levels of each message, already flat: those of the first list, then those of the second."""

    counts: tuple[Any, Any]
    price: Any
    """(n, 2) int64: low and high words."""
    size: Any


@attrs.frozen
class Side:
    """One of the lists of a book, by its place in the message."""

    book: Book
    nth: int


def levels(bids: Any, asks: Any) -> Levels:
    """Flatten lists of ``[price, size, …]`` strings.

    :raises BadMessageError: a level isn't a pair (or more) of strings
    """
    if isinstance(bids, Side):
        if bids.nth == 0:
            return _in_place(bids.book)
        bids, asks = _apart(bids.book, 1), _apart(bids.book, 0)
        return _woven(*bids, *asks)
    return _woven(*_pairs(bids, "bids"), *_pairs(asks, "asks"))


def _in_place(book: Book) -> Levels:
    """Returns the levels of books whose messages hold the bids before the asks."""
    firsts, seconds = book.counts
    both = np.stack([firsts, seconds], axis=1).ravel()
    sides = np.tile(np.array([1, -1], np.int8), len(firsts))
    return Levels(
        message=np.repeat(np.arange(len(firsts)), firsts + seconds),
        side=pa.array(np.repeat(sides, both)),
        price=decimals_of(book.price),
        size=decimals_of(book.size),
    )


def _apart(book: Book, nth: int) -> tuple[Any, Any]:
    """Counts, and (n, 4) words, of one list of a book."""
    both = np.stack(book.counts, axis=1).ravel()
    mine = np.repeat(np.tile(np.arange(2) == nth, len(book.counts[0])), both)
    return book.counts[nth], np.hstack([book.price[mine], book.size[mine]])


def levels_of_objects(bids: Any, asks: Any) -> Levels:
    """Flatten lists of objects whose first two fields are price and size, both decimals.

    :raises BadMessageError: one is missing or null
    """
    return _woven(*_couples(bids, "bids"), *_couples(asks, "asks"))


def _couples(lists: Any, name: str) -> tuple[Any, Any]:
    """Counts of levels by message, and (n, 4) words: price and size of each level."""
    flat = lists.flatten()
    price, size = flat.flatten()[:2]
    if lists.null_count or price.null_count or size.null_count:
        raise BadMessageError(f"a level of {name} has no price or no size")
    return list_counts(lists), np.hstack([words_of(narrowed(price)), words_of(narrowed(size))])


def _woven(bid_counts: Any, bid_words: Any, ask_counts: Any, ask_words: Any) -> Levels:
    """Each message's bids, then its asks."""
    counts = bid_counts + ask_counts
    begins = np.cumsum(counts) - counts
    at_bids = np.arange(len(bid_words)) + np.repeat(begins - (np.cumsum(bid_counts) - bid_counts), bid_counts)
    at_asks = np.arange(len(ask_words)) + np.repeat(
        begins + bid_counts - (np.cumsum(ask_counts) - ask_counts), ask_counts
    )
    words = np.empty((len(bid_words) + len(ask_words), 4), np.int64)
    words[at_bids] = bid_words
    words[at_asks] = ask_words
    side = np.ones(len(words), np.int8)
    side[at_asks] = -1
    return Levels(
        message=np.repeat(np.arange(len(counts)), counts),
        side=pa.array(side),
        price=decimals_of(words[:, :2]),
        size=decimals_of(words[:, 2:]),
    )


def tuples(lists: Any, name: str, width: int) -> tuple[Any, Any, Any]:
    """Lists of lists of strings, each inner list of ``width`` strings or more: how many inner lists each has, all
    strings flat, and where each inner list begins in them.

    :raises BadMessageError: shorter, or a null somewhere
    """
    if lists.null_count:
        raise BadMessageError(f"{name} is missing or null")
    inner = lists.flatten()
    if inner.null_count:
        raise BadMessageError(f"an element of {name} is null")
    values = inner.flatten()
    if values.null_count:
        raise BadMessageError(f"an element of {name} has a null")
    widths = list_counts(inner)
    if len(widths) and widths.min() < width:
        raise BadMessageError(f"an element of {name} has fewer than {width} parts")
    return list_counts(lists), values, np.cumsum(widths) - widths


def at(values: Any, begins: Any, nth: int) -> Any:
    """The nth string of each inner list."""
    return values.take(pa.array(begins + nth))


def _pairs(lists: Any, name: str) -> tuple[Any, Any]:
    """Counts of levels by message, and (n, 4) words: price and size of each level."""
    counts, values, begins = tuples(lists, name, 2)
    if len(values) > 2 * len(begins):
        values = values.take(pa.array(np.stack([begins, begins + 1], axis=1).ravel()))
    return counts, words_of(exact(values)).reshape(-1, 4)


def spread(column: Any, message: Any, is_single: bool = False) -> Any:
    """Values of messages, repeated for their levels (``is_single``: there is but one message)."""
    if isinstance(column, np.ndarray):
        return pa.array(column[message])
    if len(column) and (is_single or pc.count_distinct(column, mode="all").as_py() == 1):
        return pa.repeat(column[0], len(message))
    return column.take(pa.array(message))
