"""Reads a range of one partition in a task: by our own fetches where they can, through librdkafka elsewhere.

Both give the same rows. librdkafka has TLS, SASL, all its settings and old record formats, but makes an object for
each message, which costs several times as much.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import msgspec
import pyarrow as pa

from blumfeld_sink_spark.fetching.batches import BATCH_ROWS
from blumfeld_sink_spark.fetching.brokers import Brokers
from blumfeld_sink_spark.fetching.connection import TooOldError
from blumfeld_sink_spark.fetching.session import RangeReader
from blumfeld_sink_spark.range_counter import Skips
from blumfeld_sink_spark.records import OffsetRange
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.spark.topics.client import JAVA_ONLY, patience_s

__all__ = ["BATCH_ROWS", "consumed_because", "read_range"]

STEP_S = 10.0
"""Time that a broker has for one step of a connection. After it the broker counts as away."""

_NEEDLESS = JAVA_ONLY | {"client.id", "socket.keepalive.enable"}
"""Client settings that our own fetches honour, or that change nothing for them."""


def read_range(
    settings: ArchiveSettings, wanted: OffsetRange, skips: Skips | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields batches of raw rows in the order of the offsets, until the range's end.

    ``skips`` gets each offset that gives no row. Where the topic has lost the start of the range, that is an error;
    without ``fail_on_data_loss`` it is skipped.

    :raises AwayError: no message came within ``default.api.timeout.ms``
    :raises ArchiveError: records are lost or damaged, or the broker refuses
    """
    position = wanted.start
    skips = Skips() if skips is None else skips
    if not consumed_because(settings):
        client_id = settings.kafka.get("client.id", f"blumfeld-archive-{settings.name}")
        with closing(Brokers(settings.bootstrap, client_id, min(STEP_S, patience_s(settings)))) as brokers:
            reader = RangeReader(
                brokers,
                wanted,
                committed=settings.isolation == "read_committed",
                with_headers=settings.with_headers,
                patience_s=patience_s(settings),
                lost=lambda at: _lost(settings, wanted, at),
                skips=skips,
            )
            try:
                yield from reader.batches()
                return
            except TooOldError:
                position = reader.position
    from blumfeld_sink_spark.spark.topics.consume import consume_range

    yield from consume_range(settings, msgspec.structs.replace(wanted, start=position), skips)


def consumed_because(settings: ArchiveSettings) -> str:
    """Returns the reason to read through librdkafka; empty where our own fetches can read."""
    for key, value in sorted(settings.kafka.items()):
        if key == "security.protocol" and value.upper() == "PLAINTEXT":
            continue
        if key not in _NEEDLESS:
            return f"archive.kafka has {key}"
    return ""


def _lost(settings: ArchiveSettings, wanted: OffsetRange, position: int) -> int:
    from blumfeld_sink_spark.spark.topics.lost import first_left

    return first_left(settings, wanted, position)
