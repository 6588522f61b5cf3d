"""What a batch reads: offsets as Spark's Kafka source writes them, and the next ends under a limit. Pure.

Offsets are ``{"topic": {"0": 5}}``: the next offset to read of each partition, in checkpoints as in options.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Literal

import attrs

from blumfeld_sink_spark.errors import SettingsError
from blumfeld_sink_spark.records import OffsetRange

Place = tuple[str, int]
"""A topic's partition."""
Offsets = dict[Place, int]

EARLIEST, LATEST = -2, -1
"""As Spark's JSON and the Kafka protocol write them."""


@attrs.frozen
class Position:
    """Where to start or to end, as the settings say it."""

    kind: Literal["earliest", "latest", "timestamp", "offsets"]
    timestamp_ms: int = 0
    offsets: Mapping[Place, int] = attrs.field(factory=dict)
    """Of the kind ``offsets``; may hold ``EARLIEST`` and ``LATEST``."""


def parse_position(text: str, key: str) -> Position:
    """``earliest``, ``latest``, ``timestamp:MS`` or Spark's JSON.

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
    """Offsets of a decoded JSON document."""
    return {
        (topic, int(partition)): int(offset)
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


def to_json(offsets: Mapping[Place, int]) -> dict[str, dict[str, int]]:
    """The document of these offsets, sorted."""
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
    """Where the next batch ends: as far as ``ends``, and ``limit`` offsets in all, shared out by lag.

    A partition that is new since ``start`` begins at its earliest offset: this batch says so and reads nothing
    of it, so that a batch that is run again finds its range in the log. An end before the start (a broker that
    comes back may not know its own end yet) reads nothing. A partition that is gone keeps its offset.
    """
    known = {place: max(offset, ends.get(place, offset)) for place, offset in start.items()}
    fresh = {place: earliest[place] for place in ends if place not in start}
    lags = {place: end - start[place] for place, end in known.items()}
    shares = share_out(lags, limit) if limit is not None else lags
    return {**{place: start[place] + shares[place] for place in known}, **fresh}


def share_out(lags: Mapping[Place, int], limit: int) -> dict[Place, int]:
    """``limit`` offsets, to each its part of the lag; the sum is the smaller of the limit and all the lag."""
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
    """What lies between two offsets, sorted, without empty ranges.

    :param fresh: where a partition begins that ``start`` doesn't have; ``None``: the batch only met it (see
        :func:`next_ends`), nothing of it was read
    """
    return tuple(
        OffsetRange(topic, partition, begin, offset)
        for (topic, partition), offset in sorted(end.items())
        if offset > (begin := start.get((topic, partition), offset if fresh is None else fresh))
    )


def lag(ends: Mapping[Place, int], latest: Mapping[Place, int]) -> dict[Place, int]:
    """How many offsets each partition is behind."""
    return {place: max(0, last - ends.get(place, 0)) for place, last in sorted(latest.items())}


def vanished(earliest: Mapping[Place, int], latest: Mapping[Place, int]) -> list[Place]:
    """Partitions that had records and have none: retention took them, perhaps because their times are old."""
    return sorted(place for place, end in latest.items() if end > 0 and earliest.get(place, 0) == end)


def merged(ranges_: Iterable[OffsetRange]) -> dict[Place, list[tuple[int, int]]]:
    """Ranges by partition, sorted, with neighbours joined."""
    found: dict[Place, list[tuple[int, int]]] = {}
    for each in sorted(ranges_):
        spans = found.setdefault((each.topic, each.partition), [])
        if spans and spans[-1][1] >= each.start:
            spans[-1] = (spans[-1][0], max(spans[-1][1], each.end))
        else:
            spans.append((each.start, each.end))
    return found
