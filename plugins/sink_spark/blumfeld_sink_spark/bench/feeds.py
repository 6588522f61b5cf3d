"""The feed that the contestants archive: a capture's messages of one kind, repeated as one feed that goes on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.reading.producing import captures
from blumfeld_sink_spark.reading.producing.topic_writer import Topic
from blumfeld_sink_spark.settings import ArchiveSettings

KINDS = {"depth": b"@depth", "trade": b"@trade", "bbo": b"@bookTicker"}
TABLES = {"depth": "book_deltas", "trade": "trades", "bbo": "bbo"}
_IDS = re.compile(rb'"(?:U|u|pu|t)":(\d+)')
_TIMES = re.compile(rb'"(?:E|T)":(\d+)')


class Feed(msgspec.Struct, frozen=True, kw_only=True):
    """A topic full of one kind."""

    kind: str
    topic: str
    messages: int
    bytes: int


def fill(settings: ArchiveSettings, capture: Path, kind: str, repeat: int, partitions: int) -> Feed:
    """Fills a topic with ``repeat`` copies of the capture's messages of this kind in each partition.

    Ids and times continue from one copy to the next, so the feed has no gaps, as in a real day.

    :raises ArchiveError: the broker is away, or the capture holds none of the kind
    """
    topic = Topic(settings.bootstrap, f"bench-{kind}", settings.kafka)
    if not topic.partitions():
        topic.make(partitions)
    messages = [m for m in captures.messages(capture) if KINDS[kind] in m.value[:80]]
    if not messages:
        raise ArchiveError(f"{capture}: holds no {kind} of Binance's")
    ids, span_ms = _span(messages)
    writer = topic.writer()
    for nth in range(repeat):
        for value, timestamp_ms in _shifted(messages, nth * ids, nth * span_ms):
            for partition in range(partitions):
                writer.send(value, key=b"BTCUSDT", timestamp_ms=timestamp_ms, partition=partition)
    writer.flush()
    return Feed(kind=kind, topic=topic.name, messages=writer.records, bytes=writer.bytes)


def _span(messages: list[captures.CapturedMessage]) -> tuple[int, int]:
    """Returns the distances, in ids and in ms, from the first message to the place of its next repetition."""
    ids = [int(each) for m in (messages[0], messages[-1]) for each in _IDS.findall(m.value)]
    first_ns, last_ns = messages[0].received_ns, messages[-1].received_ns
    return max(ids) - min(ids) + 1, (last_ns - first_ns) // 1_000_000 + 1


def _shifted(messages: list[captures.CapturedMessage], ids: int, span_ms: int) -> Iterator[tuple[bytes, int]]:
    for message in messages:
        value = message.value
        if ids:
            value = _IDS.sub(lambda match: _plus(match, ids), value)
            value = _TIMES.sub(lambda match: _plus(match, span_ms), value)
        yield value, message.received_ns // 1_000_000 + span_ms


def _plus(match: re.Match[bytes], more: int) -> bytes:
    head = match[0][: match.start(1) - match.start()]
    return head + b"%d" % (int(match[1]) + more)
