"""The decision about records that a range should have and the topic no longer has."""

from __future__ import annotations

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.records import OffsetRange
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.spark.topics.client import Topics


def first_left(settings: ArchiveSettings, wanted: OffsetRange, position: int) -> int:
    """Returns the partition's first offset. A reader goes on there after its position was lost.

    :raises ArchiveError: ``fail_on_data_loss`` is on, or the partition ends before the range does
    """
    place, name = (wanted.topic, wanted.partition), f"{wanted.topic}-{wanted.partition}"
    topics = Topics(settings)
    first, last = topics.earliest([place])[place], topics.latest([place])[place]
    if last < wanted.end:
        raise ArchiveError(
            f"{name} ends at offset {last}, and offsets up to {wanted.end} were there: the topic was deleted and "
            "created again, or its log was cut. Nothing was published; archive it under another name"
        )
    if settings.fail_on_data_loss:
        raise ArchiveError(
            f"{name} begins at offset {first} now: {position} to {min(first, wanted.end)} are "
            "lost (retention?). To go on without them set archive.fail_on_data_loss = false"
        )
    return first
