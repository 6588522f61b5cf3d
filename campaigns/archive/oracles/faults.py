"""Faults planted in a feed, and the rows that ``gaps`` must have for each. Pure.

The feed is in one partition, so a message's offset is its index. Faults are planted in streams whose messages the
exchange numbers without holes: trades by id, diffs by ``pu``. A missing best bid and ask leaves no trace.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import attrs

from blumfeld.feeds.binance import Message

Kind = Literal["dropped", "doubled", "swapped"]
KINDS: tuple[Kind, ...] = ("dropped", "doubled", "swapped")


@attrs.frozen
class Fault:
    """A change to a message, and the offsets in the changed feed that ``gaps`` must name for it."""

    kind: Kind
    stream: str
    named: tuple[int, ...]


def stream_of(data: Mapping[str, Any]) -> str:
    """Returns the stream of a message, ``trade`` or ``depth``; empty if its stream isn't numbered without holes."""
    kind = str(data.get("data", data).get("e", ""))
    return {"trade": "trade", "depthUpdate": "depth"}.get(kind, "")


def streams(messages: Sequence[Message]) -> dict[str, list[int]]:
    """Returns the indices of the messages of each numbered stream."""
    found: dict[str, list[int]] = {"trade": [], "depth": []}
    for place, message in enumerate(messages):
        if stream := stream_of(message.parsed()):
            found[stream].append(place)
    return found


def breaks(messages: Sequence[Message]) -> list[int]:
    """Returns the offsets at which the feed itself breaks the exchange's numbering. ``gaps`` must name them too."""
    last: dict[str, int] = {}
    found = []
    for offset, message in enumerate(messages):
        whole = message.parsed()
        data = whole.get("data", whole)
        if not (stream := stream_of(whole)):
            continue
        if stream == "trade":
            after, now = data["t"] - 1, data["t"]
        else:
            after, now = data.get("pu", data["U"] - 1), data["u"]
        if stream in last and after != last[stream]:
            found.append(offset)
        last[stream] = max(now, last.get(stream, now))
    return found


def plant(
    messages: Sequence[Message], count: int, seed: int, border: int = 0
) -> tuple[list[Message], list[Fault]]:
    """Returns the feed with ``count`` faults, and the faults. All kinds and both streams have their turn.

    :param border: places every other fault where the message that reveals it has an offset that ``border`` divides, so
        that it is the first of a batch; 0 places none so
    :raises ValueError: the feed is too short for so many faults
    """
    chosen = random.Random(seed)
    planted = list(messages)
    faults: list[Fault] = []
    combinations = [(kind, stream) for kind in KINDS for stream in ("trade", "depth")]
    room = len(planted) // (count + 1)
    if room < max(20, 2 * border):
        raise ValueError(f"{len(planted)} messages are too few for {count} faults at borders of {border}")
    for number in range(count):
        kind, stream = combinations[number % len(combinations)]
        at = room * (number + 1) + chosen.randrange(max(1, room // 4))
        if border and (number // len(combinations)) % 2 == (number % 2):
            at -= at % border
            fault = _at_border(planted, kind, stream, at)
        else:
            fault = _anywhere(planted, kind, stream, at)
        faults.append(fault)
    return planted, faults


def _anywhere(planted: list[Message], kind: Kind, stream: str, at: int) -> Fault:
    """Plants a fault at the stream's first message from ``at`` on. All changes lie after the earlier faults."""
    places = _next_places(planted, stream, at, 2)
    first, second = places
    if kind == "dropped":
        del planted[first]
        return Fault(kind, stream, (second - 1,))
    if kind == "doubled":
        planted.insert(first + 1, planted[first])
        return Fault(kind, stream, (first + 1,))
    planted[first], planted[second] = planted[second], planted[first]
    return Fault(kind, stream, (first, second))


def _at_border(planted: list[Message], kind: Kind, stream: str, border: int) -> Fault:
    """Plants a fault across a border: the message that reveals it begins a batch, and its predecessor is in the batch
    before.
    """
    if kind == "dropped":
        first, second = _next_places(planted, stream, border, 2)
        later = planted.pop(second)
        del planted[first]
        planted.insert(border, later)
        return Fault(kind, stream, (border,))
    before = _place_before(planted, stream, border)
    if kind == "doubled":
        planted.insert(border, planted[before])
        return Fault(kind, stream, (border,))
    (after,) = _next_places(planted, stream, border, 1)
    later = planted.pop(after)
    planted.insert(border, planted[before])
    planted[before] = later
    return Fault(kind, stream, (before, border))


def _place_before(planted: Sequence[Message], stream: str, border: int) -> int:
    return next(place for place in range(border - 1, -1, -1) if stream_of(planted[place].parsed()) == stream)


def _next_places(planted: Sequence[Message], stream: str, at: int, count: int) -> list[int]:
    found = []
    for place in range(at, len(planted)):
        if stream_of(planted[place].parsed()) == stream:
            found.append(place)
            if len(found) == count:
                return found
    raise ValueError(f"no {count} messages of {stream} behind {at}: the feed is too short for so many faults")
