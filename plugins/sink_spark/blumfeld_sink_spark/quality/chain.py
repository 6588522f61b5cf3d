"""The chain of ids of one stream: what it expects next, and what it finds in a block of messages.

One stream is one (topic, partition, venue, symbol, stream). ``advance`` is sequential in meaning and vectorised in
work: a Python loop runs over findings only, and over not more than ``room`` of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from blumfeld.spi.decoders import Continuity
from blumfeld_sink_spark.tables import RESTART

HOLES = 64
"""The number of ranges of missing ids that a stream remembers, to tell a late message from a doubled one."""

SOON, LATER = 8, 64
"""So many late messages that follow one another begin a chain anew: fewer if they are newer than all before them, more
if they are as new. Older ones never do: they came late, or again.
"""
WINDOW = 64
"""Messages among which the next new beginning is looked for at once, behind one; twice as many behind each such window.
"""

GAP, DUPLICATE, OUT_OF_ORDER, RESET, MORE = "gap", "duplicate", "out_of_order", "reset", "more"
UNREAD = "unread"
"""A gap with a message in it that no decoder could read, or that the topic no longer had. The venue may have sent what
is missing.
"""
GAP_END = "gap_end"
"""The last id came that a gap had missed."""

Ints = NDArray[np.int64]


class Finding(msgspec.Struct, array_like=True, kw_only=True):
    """One thing wrong at one message."""

    kind: str
    expected: int | None = None
    got: int | None = None
    missing: int | None = None
    ts_before: int | None
    offset_before: int | None
    ts: int
    offset: int
    low: int = 0
    high: int = 0
    """The ids that the message covers: for telling late from doubled again, with more knowledge."""
    sure: bool = False
    """True where no knowledge of earlier ranges can change it, because the chain began anew before it."""


class Block(msgspec.Struct):
    """Messages of one stream in the order of their offsets."""

    first: Ints
    last: Ints
    prev: Ints
    ts: Ints
    offset: Ints
    time: Ints
    """The time of the event, or of receipt where that is earlier: an event can't be later than its message."""
    unread: Ints
    """Messages of the partition before this one that no decoder could read."""

    def __len__(self) -> int:
        return len(self.last)

    def cut(self, start: int, end: int | None = None) -> Block:
        """Messages from ``start`` up to ``end``."""
        return Block(*(getattr(self, name)[start:end] for name in BLOCK))

    def joined(self, other: Block) -> Block:
        """These, then the other's."""
        return Block(*(np.concatenate([getattr(self, name), getattr(other, name)]) for name in BLOCK))

    def lists(self) -> dict[str, list[int]]:
        """Returns the columns as lists, for JSON."""
        return {name: getattr(self, name).tolist() for name in BLOCK}

    @classmethod
    def of(cls, lists: dict[str, list[int]]) -> Block:
        """Returns the block whose ``lists`` these are."""
        return cls(*(np.array(lists[name], dtype=np.int64) for name in BLOCK))


BLOCK = ("first", "last", "prev", "ts", "offset", "time", "unread")


class Chain(msgspec.Struct):
    """The state of a stream. Builtins only."""

    high: int
    """The greatest ``last_id`` seen."""
    floor: int
    """The greatest id for which it is not known whether it came. The same holds for all ids below."""
    last: int
    """``last_id``, time and offset of the message before."""
    ts: int
    offset: int
    holes: list[list[int]] = []
    """Ranges of ids (both inside) that are missing so far, growing; not more than ``HOLES``. Behind the two ids stand
    the first and last id that the gap missed when it was found, and time and offset of the message that it was found
    at; nothing stands there where the gap was counted without a name, or an older version found it.
    """
    fresh: bool = False
    """True where the chain began anew after this value was first made."""
    run: int = 0
    """Messages up to the last that follow one another, ``LATER`` at most."""
    newest: int = -(2**63)
    """The greatest ``time`` seen."""
    unread: int = 0
    """``unread`` of the message before."""

    def open_hole(self, hole: list[int]) -> None:
        """These ids are missing."""
        self.holes.append(hole)
        for dropped in self.holes[:-HOLES]:
            self.floor = max(self.floor, dropped[1])
            for other in self.holes:
                if other[2:] == dropped[2:]:
                    del other[2:]  # a part of the gap is forgotten, so its end can't be told any more
        del self.holes[:-HOLES]

    def forget_gaps(self) -> None:
        """Forgets which gap each hole is of, so that no end of one is told."""
        for hole in self.holes:
            del hole[2:]

    def classify(self, low: int, high: int) -> Late:
        """Judges a message with ids below the greatest that came. It is late if its ids were missing (now they aren't
        any more) or if nothing is known of them, doubled otherwise.
        """
        left: list[list[int]] = []
        touched: list[list[int]] = []
        filled = 0
        for hole in self.holes:
            start, end, *gap = hole
            if end < low or high < start:
                left.append(hole)
                continue
            filled += min(end, high) - max(start, low) + 1
            if gap not in touched:
                touched.append(gap)
            left += [[s, e, *gap] for s, e in ((start, low - 1), (high + 1, end)) if s <= e]
        self.holes = left
        still_open = [hole[2:] for hole in left]
        return Late(
            OUT_OF_ORDER if filled or low <= self.floor else DUPLICATE,
            filled,
            [gap for gap in touched if gap and gap not in still_open],
        )

    def void(self, low: int) -> tuple[int, list[list[int]]]:
        """Forgets the ids from ``low`` on that were taken for missing, where ``low`` was one of them.

        :return: their number, and the gaps of which nothing is missing any more
        """
        if not any(start <= low <= end for start, end, *_ in self.holes):
            return 0, []
        void = [hole for hole in self.holes if hole[1] >= low]
        self.holes = [hole for hole in self.holes if hole[1] < low]
        still_open = [hole[2:] for hole in self.holes]
        gaps: list[list[int]] = []
        for hole in void:
            if hole[2:] and hole[2:] not in still_open and hole[2:] not in gaps:
                gaps.append(hole[2:])
        return sum(end - start + 1 for start, end, *_ in void), gaps


class Late(NamedTuple):
    """The verdict of ``classify``."""

    kind: str
    filled: int
    """The number of missing ids that the message brought."""
    closed: list[list[int]]
    """The gaps that this message closed: first and last id, time and offset of each."""

    def told(self, rule: Continuity, finding: Finding) -> list[Finding]:
        """The message's finding, then the ends of the gaps that it closed."""
        finding.kind = self.kind
        finding.missing = -self.filled if self.filled and rule is Continuity.CONSECUTIVE else None
        return [finding, *ends(rule, self.closed, finding)]


def ends(rule: Continuity, gaps: list[list[int]], at: Finding) -> list[Finding]:
    """Returns the ends of gaps, which a message closed."""
    chained = rule is Continuity.CHAINED
    return [
        Finding(
            kind=GAP_END,
            expected=low - 1 if chained else low,
            got=high if chained else high + 1,
            ts_before=ts,
            offset_before=offset,
            ts=at.ts,
            offset=at.offset,
            low=low,
            high=high,
            sure=at.sure,
        )
        for low, high, ts, offset in gaps
    ]


class Walk(msgspec.Struct):
    """The findings of a walk over messages, and the number of those that had no room."""

    findings: list[Finding] = []
    more: int = 0
    more_from: list[int] | None = None
    """``offset_before``, ``ts_before``, ``offset``, ``ts`` of the first without room."""

    def add(self, finding: Finding, room: int) -> None:
        """Keeps it, or counts it."""
        if len(self.findings) < room:
            self.findings.append(finding)
            return
        self.count(1, [finding.offset_before or 0, finding.ts_before or 0, finding.offset, finding.ts])

    def count(self, number: int, where: list[int]) -> None:
        """Counts some for which there is no room."""
        self.more += number
        self.more_from = self.more_from or where


def covers(rule: Continuity, block: Block) -> Ints:
    """The least id that each message covers."""
    if rule is Continuity.CHAINED:
        return np.minimum(block.prev + 1, block.last)
    if rule is Continuity.CONSECUTIVE:
        return np.minimum(block.first, block.last)
    return block.last


def advance(rule: Continuity, chain: Chain | None, block: Block, walk: Walk, room: int) -> Chain | None:
    """The chain after these messages; findings go into ``walk``. The chain that is given may be changed.

    Without a chain the first message begins one, which is no finding.
    """
    if not len(block):
        return chain
    low = covers(rule, block)
    start = 0
    if chain is None:
        chain = _begun(block, low, 0)
        start = 1
    window = WINDOW
    while start < len(block):
        part, least = block.cut(start, start + window), low[start : start + window]
        at = _anew(rule, chain, part)
        chain = _advance(rule, chain, part.cut(0, at), least[:at], walk, room)
        start, window = start + at, 2 * window
        if at < len(part):
            chain = _reset(rule, chain, part, least, at, walk, room)
            start, window = start + 1, WINDOW
    return chain


def _begun(block: Block, low: Ints, at: int) -> Chain:
    last = int(block.last[at])
    return Chain(
        high=last,
        floor=int(low[at]) - 1,
        last=last,
        ts=int(block.ts[at]),
        offset=int(block.offset[at]),
        run=1,
        newest=int(block.time[at]),
        unread=int(block.unread[at]),
    )


def _anew(rule: Continuity, chain: Chain, block: Block) -> int:
    """Returns the first message at which the chain begins anew; ``len(block)`` where none does.

    The venue says so; or a message names the one before and has a smaller id; or so many late messages follow one
    another that the ids before them were wrong, or the venue counts from a smaller number again.
    """
    before = np.concatenate([[chain.last], block.last[:-1]])
    follows = _follows(rule, block, before)
    begins = np.zeros(len(block), dtype=bool)
    if rule is Continuity.CHAINED:
        begins |= (block.prev == RESTART) | (follows & (block.last < before))
    high = np.maximum.accumulate(np.concatenate([[chain.high], block.last]))[:-1]
    late = _late(rule, block, high)
    if late.any():
        newest = np.maximum.accumulate(np.concatenate([[chain.newest], block.time]))[:-1]
        enough = np.where(block.time > newest, SOON, LATER)
        begins |= late & (block.time >= newest) & (_runs(chain.run, follows) >= enough)
    starts = np.nonzero(begins)[0]
    return int(starts[0]) if len(starts) else len(block)


def _follows(rule: Continuity, block: Block, before: Ints) -> NDArray[np.bool_]:
    """Returns for each message whether it comes right after the one before it, which has the id ``before``."""
    if rule is Continuity.CONSECUTIVE:
        return block.first == before + 1
    if rule is Continuity.CHAINED:
        return block.prev == before
    return block.last > before


def _runs(run: int, follows: NDArray[np.bool_]) -> Ints:
    """Returns for each message the number of those up to it that follow one another."""
    place = np.arange(len(follows))
    broken = np.maximum.accumulate(np.where(follows, -run, place))
    runs: Ints = np.minimum(place - broken + 1, LATER)
    return runs


def _late(rule: Continuity, block: Block, high: Ints) -> NDArray[np.bool_]:
    late = block.last <= high
    if rule is Continuity.CHAINED:
        late &= ~((block.last == high) & (block.prev == high))  # a heartbeat
    return late


def _reset(rule: Continuity, chain: Chain, block: Block, low: Ints, at: int, walk: Walk, room: int) -> Chain:
    """Begins the chain anew at a message.

    Where it is one of those that are missing, the ids behind it never were: a wrong id had made the gap.
    """
    consecutive = rule is Continuity.CONSECUTIVE
    void, gaps = chain.void(int(low[at])) if consecutive else (0, [])
    finding = Finding(
        kind=RESET,
        expected=chain.high + consecutive,
        got=int(
            (block.prev if rule is Continuity.CHAINED else block.first if consecutive else block.last)[at]
        ),
        missing=-void or None,
        ts_before=chain.ts,
        offset_before=chain.offset,
        ts=int(block.ts[at]),
        offset=int(block.offset[at]),
        low=int(low[at]),
        sure=True,
    )
    for item in (finding, *ends(rule, gaps, finding)):
        walk.add(item, room)
    begun = _begun(block, low, at)
    begun.fresh = True
    begun.run = int(_runs(chain.run, _follows(rule, block.cut(at, at + 1), np.array([chain.last])))[0])
    begun.newest = max(chain.newest, begun.newest)
    return begun


def _advance(rule: Continuity, chain: Chain, block: Block, low: Ints, walk: Walk, room: int) -> Chain:
    """Advances over messages among which no chain begins anew."""
    if not len(block):
        return chain
    highs = np.maximum.accumulate(np.concatenate([[chain.high], block.last]))
    before = highs[:-1]
    grows = block.last > before
    gaps = _gaps(rule, block, before, grows)
    events = np.nonzero(gaps | _late(rule, block, before))[0]
    roomy = events[: max(0, room - len(walk.findings))]
    _name(rule, chain, block, low, (before, gaps), roomy.tolist(), walk)
    _overflow(rule, chain, block, (before, gaps), events[len(roomy) :], walk)
    follows = _follows(rule, block, np.concatenate([[chain.last], block.last[:-1]]))
    chain.run = int(_runs(chain.run, follows)[-1])
    chain.newest = max(chain.newest, int(block.time.max()))
    chain.high = int(highs[-1])
    chain.last, chain.ts, chain.offset = int(block.last[-1]), int(block.ts[-1]), int(block.offset[-1])
    chain.unread = int(block.unread[-1])
    return chain


def _gaps(rule: Continuity, block: Block, before: Ints, grows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    if rule is Continuity.CONSECUTIVE:
        return grows & (block.first > before + 1)
    if rule is Continuity.CHAINED:
        return grows & (block.prev != before)
    return np.zeros(len(block), dtype=bool)


def _place(chain: Chain, block: Block, at: int) -> dict[str, int]:
    """Returns the place of a finding: the message, and the one before it in the stream."""
    return {
        "ts_before": int(block.ts[at - 1]) if at else chain.ts,
        "offset_before": int(block.offset[at - 1]) if at else chain.offset,
        "ts": int(block.ts[at]),
        "offset": int(block.offset[at]),
    }


def _name(
    rule: Continuity,
    chain: Chain,
    block: Block,
    low: Ints,
    seen: tuple[Ints, NDArray[np.bool_]],
    events: list[int],
    walk: Walk,
) -> None:
    """Adds a finding for each of these messages."""
    before, gaps = seen
    for at in events:
        place: dict[str, Any] = _place(chain, block, at)
        least, high = int(low[at]), int(block.last[at])
        if gaps[at]:
            finding = _gap(rule, chain, block, int(before[at]), at, place, named=True)
        elif rule is Continuity.MONOTONE:
            kind = DUPLICATE if high == before[at] else OUT_OF_ORDER
            finding = Finding(kind=kind, expected=int(before[at]), got=high, sure=chain.fresh, **place)
        else:
            expected = int(before[at]) + (rule is Continuity.CONSECUTIVE)
            finding = Finding(kind=OUT_OF_ORDER, expected=expected, got=high, sure=chain.fresh, **place)
            walk.findings += chain.classify(least, high).told(rule, finding)
            finding.low, finding.high = least, high
            continue
        finding.low, finding.high = least, high
        walk.findings.append(finding)


def _gap(
    rule: Continuity,
    chain: Chain,
    block: Block,
    before: int,
    at: int,
    place: dict[str, Any],
    *,
    named: bool,
) -> Finding:
    def missed(low: int, high: int) -> None:
        chain.open_hole([low, high, *([low, high, place["ts"], place["offset"]] if named else ())])

    kind = UNREAD if block.unread[at] != (block.unread[at - 1] if at else chain.unread) else GAP
    if rule is Continuity.CONSECUTIVE:
        expected, got = before + 1, int(block.first[at])
        missed(expected, got - 1)
        return Finding(
            kind=kind, expected=expected, got=got, missing=got - expected, sure=chain.fresh, **place
        )
    got = int(block.prev[at])
    if got > before:
        missed(before + 1, got)
    return Finding(kind=kind, expected=before, got=got, sure=chain.fresh, **place)


def _overflow(
    rule: Continuity,
    chain: Chain,
    block: Block,
    seen: tuple[Ints, NDArray[np.bool_]],
    events: NDArray[np.intp],
    walk: Walk,
) -> None:
    """Counts findings without room. Only the last of their holes are remembered; late messages among them fill none."""
    if not len(events):
        return
    before, gaps = seen
    place = _place(chain, block, int(events[0]))
    walk.count(len(events), [place[key] for key in ("offset_before", "ts_before", "offset", "ts")])
    for at in events[gaps[events]][-HOLES:].tolist():
        _gap(rule, chain, block, int(before[at]), at, dict(place), named=False)
