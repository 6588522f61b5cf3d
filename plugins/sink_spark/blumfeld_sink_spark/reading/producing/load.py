"""Sends capture files to a topic: the bytes as they are, the time of receipt as the record's timestamp."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal

import attrs

from blumfeld.feeds import RECV_HEADER
from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.reading.producing import captures
from blumfeld_sink_spark.reading.producing.captures import CapturedMessage
from blumfeld_sink_spark.reading.producing.pace import Pace
from blumfeld_sink_spark.reading.producing.topic_writer import Headers, Topic

Spread = Literal["key", "stream", "repeat"]


@attrs.frozen
class LoadPlan:
    """The files to send, and the keys, partitions and limits to send them with."""

    files: Sequence[Path]
    key: str = "symbol"
    """``symbol``, ``none``, or the key itself."""
    symbol: str = ""
    """Symbol of messages without one before the first that names one (a REST snapshot at the front)."""
    recv_header: str = RECV_HEADER
    """Header for the time of receipt, ns in ASCII; empty sends none."""
    repeat: int = 1
    limit: int = 0
    """Number of messages to send; 0 is no limit."""
    spread: Spread = "key"
    """Choice of the partition: by key, by stream (a book's snapshot goes with its changes), or by repetition."""
    compression: str = "none"


@attrs.frozen
class Loaded:
    """The acknowledged messages."""

    messages: int
    bytes: int
    seconds: float
    streams: dict[str, int]
    partitions: int


@attrs.define
class Record:
    """One record to send."""

    value: bytes
    key: bytes | None
    timestamp_ms: int
    partition: int
    headers: Headers | None
    stream: str


def records(plan: LoadPlan, partitions: int) -> Iterator[Record]:
    """Yields the records of the plan in order. Its only I/O is reading the files.

    :raises ArchiveError: a file can't be read, or no symbol is known for a message
    """
    made = (record for repetition in range(plan.repeat) for record in _once(plan, partitions, repetition))
    return islice(made, plan.limit or None)


def _once(plan: LoadPlan, partitions: int, repetition: int) -> Iterator[Record]:
    keys = _Keys(plan)
    places: dict[str, int] = {}
    for path in plan.files:
        for message in captures.messages(path):
            stream = captures.stream_of(message.value)
            yield Record(
                value=message.value,
                key=keys.of(message),
                timestamp_ms=message.received_ns // 1_000_000,
                partition=_partition(plan.spread, stream, places, repetition, partitions),
                headers=[(plan.recv_header, b"%d" % message.received_ns)] if plan.recv_header else None,
                stream=stream,
            )


def _partition(spread: Spread, stream: str, places: dict[str, int], repetition: int, partitions: int) -> int:
    if spread == "key":
        return -1
    if spread == "repeat":
        return repetition % partitions
    kind = "book" if stream == captures.SNAPSHOT or "depth" in stream else stream
    return places.setdefault(kind, len(places)) % partitions


class _Keys:
    """The key of each message. A message without a symbol (a REST answer) has the symbol of the one before it."""

    def __init__(self, plan: LoadPlan) -> None:
        self._mode = plan.key
        self._last = plan.symbol.encode() or None

    def of(self, message: CapturedMessage) -> bytes | None:
        """Returns the key of the next message.

        :raises ArchiveError: neither it nor a message before it names a symbol
        """
        if self._mode == "none":
            return None
        if self._mode != "symbol":
            return self._mode.encode()
        self._last = captures.symbol_of(message) or self._last
        if self._last is None:
            raise ArchiveError(
                "a message names no symbol, nor did one before it; say --symbol NAME or --key none"
            )
        return self._last


def load(
    plan: LoadPlan,
    topic: Topic,
    *,
    partitions: int = 1,
    pace: Pace | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    every: int = 5000,
) -> Loaded:
    """Sends all records and waits for every acknowledgement. A missing topic is created, without a retention limit.

    :param partitions: number of partitions of a new topic; an existing one keeps its own
    :param on_progress: called with (messages, bytes) after each ``every`` messages
    :raises ArchiveError: the broker is away or refuses, or a file can't be read
    """
    count = topic.partitions()
    if not count:
        topic.make(partitions)
        count = partitions
    writer = topic.writer(plan.compression, pace)
    streams: Counter[str] = Counter()
    begun = time.monotonic()
    for record in records(plan, count):
        writer.send(
            record.value,
            key=record.key,
            timestamp_ms=record.timestamp_ms,
            partition=record.partition,
            headers=record.headers,
        )
        streams[record.stream] += 1
        if on_progress and writer.records % every == 0:
            on_progress(writer.records, writer.bytes)
    writer.flush()
    return Loaded(
        messages=writer.records,
        bytes=writer.bytes,
        seconds=time.monotonic() - begun,
        streams=dict(sorted(streams.items())),
        partitions=count,
    )
