"""Made-up feeds with known faults, for tests of ``quality``."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa

from blumfeld.spi.decoders import Continuity
from blumfeld_sink_spark.apply import SEQUENCES
from blumfeld_sink_spark.quality import Summariser
from blumfeld_sink_spark.records import OffsetRange, TaskResult
from tests.plugins.sink_spark.results import task_result

CONTINUITY = {
    "trade": Continuity.CONSECUTIVE,
    "depth": Continuity.CHAINED,
    "bbo": Continuity.MONOTONE,
    "other": Continuity.NONE,
}


@attrs.frozen
class Message:
    """One message with ids. Its index in the feed decides its offset."""

    first: int | None
    last: int | None
    prev: int | None = None
    stream: str = "trade"
    symbol: str = "BTCUSDT"
    ts: int = 0
    recv: int | None = None


def trades(ids: Iterable[int], **more: Any) -> list[Message]:
    return [Message(number, number, ts=number * 1000, **more) for number in ids]


def sequences(messages: Sequence[Message], offsets: Sequence[int]) -> pa.Table:
    """Returns the messages' sequences as ``apply.decode_rows`` gives them."""
    rows = [
        {
            "row": nth,
            "venue": "test",
            "symbol": message.symbol,
            "stream": message.stream,
            "first_id": message.first,
            "last_id": message.last,
            "prev_id": message.prev,
            "ts_event": message.ts,
            "ts_recv": message.ts if message.recv is None else message.recv,
            "offset": offset,
        }
        for nth, (message, offset) in enumerate(zip(messages, offsets, strict=True))
    ]
    return pa.Table.from_pylist(rows, schema=SEQUENCES)


def result_of(
    messages: Sequence[Message],
    start: int,
    cuts: Sequence[int] = (),
    *,
    tables: Mapping[str, pa.Table] | None = None,
    topic: str = "feed",
    partition: int = 0,
) -> TaskResult:
    """Returns a task's result for these messages. The first is at the offset ``start``; the task gets them in pieces,
    cut at ``cuts``.
    """
    summariser = Summariser(topic, partition, CONTINUITY, skew_ms=10_000, at_once=1)
    edges = [0, *sorted(cuts), len(messages)]
    for left, right in itertools.pairwise(edges):
        part = messages[left:right]
        summariser.add(sequences(part, range(start + left, start + right)), tables or {})
    wanted = OffsetRange(topic, partition, start, start + len(messages))
    return task_result(wanted, sequences=summariser.result())


def result_at(messages: Sequence[Message], offsets: Sequence[int], unread: Sequence[int]) -> TaskResult:
    """Returns a task's result for messages at these offsets, with messages among them that no decoder could read."""
    summariser = Summariser("feed", 0, CONTINUITY, skew_ms=10_000)
    every = sorted([*offsets, *unread])
    columns = {
        "offset": every,
        "ts_recv": every,
        "unread": [at in unread for at in every],
        "bad_recv": [False] * len(every),
    }
    summariser.add(sequences(messages, offsets), {}, pa.table(columns))
    wanted = OffsetRange("feed", 0, every[0], every[-1] + 1) if every else OffsetRange("feed", 0, 0, 0)
    return task_result(wanted, sequences=summariser.result())
