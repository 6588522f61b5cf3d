"""Sends an archive's table ``raw`` to a topic again: partition, key, value, headers, timestamp and order are kept."""

from __future__ import annotations

import time
from collections.abc import Callable

import attrs

from blumfeld_sink_spark.errors import ArchiveError, SettingsError
from blumfeld_sink_spark.reading.producing.pace import Pace
from blumfeld_sink_spark.reading.producing.raw_rows import RawTopic
from blumfeld_sink_spark.reading.producing.topic_writer import Topic

HOLES_TOLD = 3


@attrs.frozen
class ReplayPlan:
    """The records to send, and the rules for the target topic."""

    start_ns: int | None = None
    end_ns: int | None = None
    """Exclusive."""
    append: bool = False
    """Whether the topic may hold records already; the replay then follows them."""
    renumber: bool = False
    """Whether to replay even if offsets will differ from the original ones."""
    partitions: int = 0
    """Number of partitions of a new topic; 0 is the number that the archive knows."""
    compression: str = "none"

    @property
    def keeps_offsets(self) -> bool:
        """Whether each record must get its original offset."""
        return not (self.append or self.renumber or self.start_ns is not None or self.end_ns is not None)


@attrs.frozen
class Replayed:
    """The acknowledged records."""

    topic: str
    records: int
    bytes: int
    seconds: float
    partitions: int
    same_offsets: bool
    """Whether each record has its original offset."""


def replay(
    source: RawTopic,
    target: Topic,
    plan: ReplayPlan,
    *,
    pace: Pace | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    every: int = 5000,
) -> Replayed:
    """Sends all records and waits for every acknowledgement.

    With a pace the partitions are merged by timestamp. As fast as possible, one partition follows the other.

    :raises SettingsError: the plan has fewer partitions than the archived topic
    :raises ArchiveError: offsets would differ without ``renumber``; the topic holds records without ``append``; the
        broker is away or refuses
    """
    pace = pace or Pace()
    if plan.keeps_offsets:
        _check_dense(source)
    partitions = _prepare(source, target, plan)
    writer = target.writer(plan.compression, pace)
    begun = time.monotonic()
    for record in source.records(plan.start_ns, plan.end_ns, by_time=not pace.is_flat_out):
        writer.send(
            record.value,
            key=record.key,
            timestamp_ms=record.timestamp_ms,
            partition=record.partition,
            headers=record.headers,
        )
        if on_progress and writer.records % every == 0:
            on_progress(writer.records, writer.bytes)
    writer.flush()
    return Replayed(
        topic=target.name,
        records=writer.records,
        bytes=writer.bytes,
        seconds=time.monotonic() - begun,
        partitions=partitions,
        same_offsets=plan.keeps_offsets,
    )


def _check_dense(source: RawTopic) -> None:
    holes = source.holes()
    if not holes:
        return
    holes_text = "; ".join(map(str, holes[:HOLES_TOLD])) + ("; …" if len(holes) > HOLES_TOLD else "")
    raise ArchiveError(
        f"the archive has holes, so offsets of {source.topic} would differ ({holes_text}); "
        "--renumber replays what there is with new offsets"
    )


def _prepare(source: RawTopic, target: Topic, plan: ReplayPlan) -> int:
    """Checks the target topic, creates it if it is missing, and returns its number of partitions."""
    wanted = plan.partitions or source.partitions
    if wanted < source.partitions:
        raise SettingsError(
            f"partitions: {wanted}; allowed: {source.partitions} or more, as {source.topic} had"
        )
    have = target.partitions()
    if not have:
        target.make(wanted)
        return wanted
    if have < source.partitions:
        raise ArchiveError(
            f"topic {target.name} has {have} partitions and {source.topic} had {source.partitions}; take another name"
        )
    ends = target.ends()
    used = sorted(partition for partition, (_, end) in ends.items() if end)
    if used and not plan.append:
        raise ArchiveError(
            f"topic {target.name} isn't empty (partition {used[0]} ends at {ends[used[0]][1]}); "
            "take another name, or --append behind what is there"
        )
    return have
