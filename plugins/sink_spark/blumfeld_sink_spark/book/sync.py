"""Snapshots and diffs put together to a book, in the order that the venue's rules ask for.

The rules follow from the ids of the rows alone. A diff whose ``last_id`` the book already has is dropped. The first one
after a snapshot must straddle its id (Binance) or name it (OKX); the others must name the one before (``prev_id``) or
begin at most one id after it. Where a venue numbers nothing (Kraken, Coinbase's level2) each diff is applied as it
comes.

A venue that chains its messages may begin its numbers anew (OKX, in a maintenance): the message that does names the one
before it and has a smaller id. A message without levels has no row, so that one may be missing here. Then a small id
follows that the book has never seen; it is applied, and the book is broken.

A snapshot asked for by REST may be older than diffs that came before it. So the last ``RECENT`` diffs are kept, and
applied once more on top of it. A diff that doesn't fit is applied, and the book says from then on that it is broken:
most of it is still right, and its reader decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from blumfeld_sink_spark.book.change import Change
from blumfeld_sink_spark.book.depth import Depth
from blumfeld_sink_spark.tables import RESTART

RECENT = 4096
"""Diffs that are kept for a snapshot that comes late."""
NULL = -(2**63)

Ints = NDArray[np.int64]


@attrs.define
class Sync:
    """The state of one book. Feed it whole messages in the order of their offsets."""

    id: int | None = None
    synced: bool = False
    """True after the first snapshot: there is a book."""
    fresh: bool = False
    """True until the first diff is applied on top of the snapshot."""
    breaks: int = 0
    """Diffs since the last snapshot that didn't fit the one before."""
    broken_at: int | None = None
    """Offset of the first of them."""
    dropped: int = 0
    """Diffs that the book already had."""
    snapshot_offset: int | None = None
    _depth: Depth = attrs.field(factory=Depth)
    _in_band: bool = False
    """True where the snapshot stands in the chain of the diffs, so that no diff after it is older."""
    _restart: tuple[int, int] | None = None
    """``prev_id`` and ``last_id`` of the diff that began the numbers anew, since the last snapshot."""
    _recent: deque[pa.Table] = attrs.field(factory=deque)
    _recent_messages: int = 0

    @property
    def depth(self) -> int | None:
        """Levels of each side that the book is cut to; None where it isn't."""
        return self._depth.levels

    def begin(self, rows: pa.Table, last_id: int | None) -> Change:
        """Begins with a whole book from elsewhere, and returns the step to it."""
        self.id = last_id
        self.synced = self.fresh = True
        return self._depth.take(Change(rows, True, last_id))

    def feed(self, rows: pa.Table) -> Iterator[Change]:
        """Returns the steps for these rows of ``book_deltas``, all of one venue, symbol, topic and partition.

        :param rows: with the columns first_id, last_id, prev_id, is_snapshot, k_offset and those of the levels; venue
            and depth, if they have them
        """
        yield from map(self._depth.take, self._in_order(rows))

    def _in_order(self, rows: pa.Table) -> Iterator[Change]:
        messages = Messages.of(rows)
        start = 0
        for at in np.nonzero(messages.snapshot)[0].tolist():
            yield from self._diffs(messages.cut(start, at))
            yield from self._snapshot(messages.cut(at, at + 1))
            start = at + 1
        yield from self._diffs(messages.cut(start, len(messages)))

    def _snapshot(self, message: Messages) -> Iterator[Change]:
        last_id = int(message.last[0])
        anew = last_id == NULL or message.prev[0] == RESTART
        if self.synced and not self.breaks and not anew and self.id is not None and last_id <= self.id:
            return  # the book is newer, and deeper than what REST gives
        later = [] if anew else self._newer(last_id)
        if anew:
            self._forget()
        self._in_band, self._restart = bool(message.prev[0] == RESTART), None
        self.id = None if last_id == NULL else last_id
        self.synced = self.fresh = True
        self.breaks, self.broken_at = 0, None
        self.snapshot_offset = int(message.offset[0])
        yield Change(message.rows, True, self.id)
        for part in later:
            yield from self._apply(part, anew=False)

    def _newer(self, last_id: int) -> list[Messages]:
        """Kept diffs that a snapshot doesn't have yet."""
        return [
            part
            for kept in self._recent
            for messages in [Messages.of(kept)]
            for part in messages.only(messages.last > last_id)
        ]

    def _diffs(self, messages: Messages) -> Iterator[Change]:
        anew = False
        while len(messages):
            if anew:
                self._restart = (int(messages.prev[0]), int(messages.last[0]))
            count = self._of_these_numbers(messages, anew)
            part = messages.cut(0, count)
            if len(part):
                if anew:
                    self._forget()
                if self.synced:
                    yield from self._apply(part, anew)
                self._keep(part)
            messages, anew = messages.cut(count, len(messages)), True

    def _of_these_numbers(self, messages: Messages, anew: bool) -> int:
        """Counts the messages before the next one that begins the numbers anew.

        :param anew: the first of them does
        """
        begins = (messages.prev != NULL) & (messages.prev != RESTART) & (messages.last != NULL)
        begins &= messages.last < messages.prev
        if self._restart is not None:
            begins &= (messages.prev != self._restart[0]) | (messages.last != self._restart[1])
        begins |= self._unseen(messages, anew)
        begins[0] &= not anew
        starts = np.nonzero(begins)[0]
        return int(starts[0]) if len(starts) else len(messages)

    def _unseen(self, messages: Messages, anew: bool) -> NDArray[np.bool_]:
        """Finds messages of small ids that the book has never seen, where that can't be."""
        old = (messages.prev != NULL) & (messages.last <= self._highs(messages, anew))
        if not self._in_band or not old.any():
            return np.zeros(len(messages), dtype=bool)
        before = [Messages.of(kept).last for kept in self._recent]
        known = np.concatenate([*before, [NULL if self.id is None else self.id], messages.last])
        firsts = np.unique(known, return_index=True)
        first = firsts[1][np.searchsorted(firsts[0], messages.last)]
        return old & (first == len(known) - len(messages) + np.arange(len(messages)))

    def _highs(self, messages: Messages, anew: bool) -> Ints:
        """Returns for each message the greatest id before it in these numbers."""
        floor = NULL if self.id is None or anew else self.id
        return np.maximum.accumulate(np.concatenate([[floor], messages.last]))[:-1]

    def _forget(self) -> None:
        self._recent.clear()
        self._recent_messages = 0

    def _keep(self, messages: Messages) -> None:
        kept = messages.cut(max(0, len(messages) - RECENT), len(messages))
        self._recent.append(kept.rows)
        self._recent_messages += len(kept)
        while len(self._recent) > 1 and self._recent_messages > RECENT + len(Messages.of(self._recent[0])):
            self._recent_messages -= len(Messages.of(self._recent.popleft()))

    def _apply(self, messages: Messages, anew: bool) -> Iterator[Change]:
        known = messages.last != NULL
        wanted = ~known | (messages.last > self._highs(messages, anew))
        self.dropped += int((~wanted).sum())
        for part in messages.only(wanted):
            before = np.concatenate([[NULL if self.id is None else self.id], part.last[:-1]])
            whole = self._judge(part, before)
            for piece, broken in ((part.cut(0, whole), False), (part.cut(whole, len(part)), True)):
                if len(piece):
                    last = int(piece.last[-1])
                    self.id = last if last != NULL else self.id
                    self.fresh = False
                    yield Change(piece.rows, False, self.id, broken)

    def _judge(self, part: Messages, before: Ints) -> int:
        """Counts the diffs that don't fit. Returns the number of messages before the book breaks."""
        straddles = (part.first != NULL) & (part.first <= before + 1)
        fits = np.where(part.prev != NULL, part.prev == before, straddles | (part.first == NULL))
        fits |= (part.last == NULL) | (before == NULL)
        if self.fresh:
            fits[0] |= straddles[0]
        wrong = np.nonzero(~fits)[0]
        whole = 0 if self.breaks else int(wrong[0]) if len(wrong) else len(part)
        if len(wrong):
            self.breaks += len(wrong)
            self.broken_at = self.broken_at if self.broken_at is not None else int(part.offset[wrong[0]])
        return whole


@attrs.frozen
class Messages:
    """Rows, and for each message in them where it begins and its ids."""

    rows: pa.Table
    starts: Ints
    first: Ints
    last: Ints
    prev: Ints
    snapshot: NDArray[np.bool_]
    offset: Ints

    def __len__(self) -> int:
        return len(self.offset)

    @classmethod
    def of(cls, rows: pa.Table) -> Messages:
        """Messages of rows in the order of their offsets."""
        offset = rows.column("k_offset").to_numpy()
        starts = np.nonzero(np.concatenate([[True], offset[1:] != offset[:-1]]))[0] if len(offset) else _NONE
        heads = rows.select(["first_id", "last_id", "prev_id", "is_snapshot"]).take(starts)
        ids = [
            pc.fill_null(heads.column(name), NULL).to_numpy() for name in ("first_id", "last_id", "prev_id")
        ]
        return cls(
            rows, starts, ids[0], ids[1], ids[2], heads.column("is_snapshot").to_numpy(), offset[starts]
        )

    def cut(self, start: int, end: int) -> Messages:
        """Messages from ``start`` up to ``end``."""
        if start == 0 and end == len(self):
            return self
        row, stop = self.edge(start), self.edge(end)
        return Messages(
            self.rows.slice(row, stop - row),
            self.starts[start:end] - row,
            self.first[start:end],
            self.last[start:end],
            self.prev[start:end],
            self.snapshot[start:end],
            self.offset[start:end],
        )

    def edge(self, at: int) -> int:
        """The row at which a message begins."""
        return int(self.starts[at]) if at < len(self) else self.rows.num_rows

    def only(self, wanted: NDArray[np.bool_]) -> Iterator[Messages]:
        """The longest runs of wanted messages."""
        edges = np.nonzero(np.diff(np.concatenate([[False], wanted, [False]]).astype(np.int8)))[0].tolist()
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            yield self.cut(start, end)


_NONE = np.zeros(0, dtype=np.int64)
