"""The offsets of batches: their JSON form, the next ends under a limit, and the ranges between two ends. Pure.

The JSON form is that of Spark's Kafka source, ``{"topic": {"0": 5}}``: the next offset to read of each partition.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Literal

import attrs

from blumfeld_sink_spark.errors import SettingsError
from blumfeld_sink_spark.records import OffsetRange

Place = tuple[str, int]
"""(topic, partition)."""
Offsets = dict[Place, int]

EARLIEST, LATEST = -2, -1
"""Offsets that stand for a partition's ends in Spark's JSON; as timestamps they do so in Kafka's ListOffsets."""


@attrs.frozen
class Position:
    """A start or an end, as the settings give it."""

    kind: Literal["earliest", "latest", "timestamp", "offsets"]
    timestamp_ms: int = 0
    offsets: Mapping[Place, int] = attrs.field(factory=dict)
    """Filled for the kind ``offsets``; may hold ``EARLIEST`` and ``LATEST``."""


def parse_position(text: str, key: str) -> Position:
    """Parses ``earliest``, ``latest``, ``timestamp:MS`` or Spark's JSON.

    :raises SettingsError: it is none of them; the message names ``key``
    """
    if text == "earliest" or text == "latest":
        return Position(kind="earliest" if text == "earliest" else "latest")
    word, _, number = text.partition(":")
    if word == "timestamp" and number.strip().lstrip("-").isdigit():
        return Position(kind="timestamp", timestamp_ms=int(number))
    try:
        if text.lstrip().startswith("{"):
            return Position(kind="offsets", offsets=from_json(json.loads(text)))
    except (ValueError, TypeError, AttributeError):
        pass
    raise SettingsError(
        f"archive.{key}: {text!r}; allowed: earliest, latest, timestamp:MS or "
        'offsets as {"topic": {"0": 5}}'
    )


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Returns the offsets of a decoded JSON document."""
    return {
        (topic, int(partition)): int(offset)
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


def to_json(offsets: Mapping[Place, int]) -> dict[str, dict[str, int]]:
    """Returns the JSON document of these offsets, sorted."""
    document: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        document.setdefault(topic, {})[str(partition)] = offset
    return document


def next_ends(
    start: Mapping[Place, int],
    ends: Mapping[Place, int],
    earliest: Mapping[Place, int],
    limit: int | None,
) -> Offsets:
    """Returns the offsets at which the next batch ends: ``ends`` at most, and ``limit`` offsets in all, shared by lag.

    A partition that is new since ``start`` gets its earliest offset as end, so this batch reads nothing of it. The
    next batch then finds its start in the offset log, and reads the same range if it is run again. An end before the
    start reads nothing: a broker that comes back may not know its own end yet. A partition that is gone keeps its
    offset.
    """
    known = {place: max(offset, ends.get(place, offset)) for place, offset in start.items()}
    fresh = {place: earliest[place] for place in ends if place not in start}
    lags = {place: end - start[place] for place, end in known.items()}
    shares = share_out(lags, limit) if limit is not None else lags
    return {**{place: start[place] + shares[place] for place in known}, **fresh}


def share_out(lags: Mapping[Place, int], limit: int) -> dict[Place, int]:
    """Shares ``limit`` offsets out by lag. The sum is the smaller of the limit and the whole lag."""
    total = sum(lags.values())
    if total <= limit:
        return dict(lags)
    shares = {place: lag * limit // total for place, lag in lags.items()}
    left = limit - sum(shares.values())
    for place in sorted(lags, key=lambda each: (-(lags[each] - shares[each]), each)):
        if left == 0:
            break
        more = min(left, lags[place] - shares[place], 1)
        shares[place] += more
        left -= more
    return shares


def ranges(
    start: Mapping[Place, int], end: Mapping[Place, int], fresh: int | None = None
) -> tuple[OffsetRange, ...]:
    """Returns the ranges from ``start`` to ``end``, sorted, without empty ones.

    :param fresh: begin of a partition that ``start`` doesn't have; ``None``: the batch reads nothing of such a
        partition (see :func:`next_ends`)
    """
    return tuple(
        OffsetRange(topic, partition, begin, offset)
        for (topic, partition), offset in sorted(end.items())
        if offset > (begin := start.get((topic, partition), offset if fresh is None else fresh))
    )


def lag(ends: Mapping[Place, int], latest: Mapping[Place, int]) -> dict[Place, int]:
    """Returns the number of offsets that each partition is behind."""
    return {place: max(0, last - ends.get(place, 0)) for place, last in sorted(latest.items())}


def vanished(earliest: Mapping[Place, int], latest: Mapping[Place, int]) -> list[Place]:
    """Returns the partitions that had records and have none: retention took them, perhaps for their old timestamps."""
    return sorted(place for place, end in latest.items() if end > 0 and earliest.get(place, 0) == end)


def merged(ranges_: Iterable[OffsetRange]) -> dict[Place, list[tuple[int, int]]]:
    """Returns the ranges by partition as (start, end), sorted, with neighbours and overlaps joined."""
    spans_by_place: dict[Place, list[tuple[int, int]]] = {}
    for each in sorted(ranges_):
        spans = spans_by_place.setdefault((each.topic, each.partition), [])
        if spans and spans[-1][1] >= each.start:
            spans[-1] = (spans[-1][0], max(spans[-1][1], each.end))
        else:
            spans.append((each.start, each.end))
    return spans_by_place
