"""Survey a log's directory without opening its files, but for the size of the last one.

A start needs no more of a log that was closed cleanly, and a node may have thousands of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import msgspec

from blumfeld.log.segments.file_names import Suffix, partition_dir, segment_name
from blumfeld.spi.runtime import Files
from blumfeld.spi.storage import TopicPartition
from blumfeld_storage_local.logs.leftovers import FoundSegments, tidy


class LogSurvey(msgspec.Struct, frozen=True):
    """The files of one log's directory."""

    segments: FoundSegments
    active_bytes: int
    """Size of the last segment's log file; 0 if there is no segment."""
    topic_id: bytes = bytes(16)


def survey_log(files: Files, directory: str, topic_id: bytes = bytes(16)) -> LogSurvey:
    """Tidy up and list one log's directory. Blocks. Raises ``OSError``."""
    on_disk = tidy(files, directory)
    if not on_disk.bases:
        return LogSurvey(on_disk, 0, topic_id)
    file = files.open(f"{directory}/{segment_name(on_disk.bases[-1], Suffix.LOG)}", write=False)
    try:
        return LogSurvey(on_disk, file.size(), topic_id)
    finally:
        file.close()


def survey_all(
    files: Files, path: str, logs: Mapping[TopicPartition, bytes]
) -> dict[TopicPartition, LogSurvey]:
    """Survey all logs of a log directory in one job: to hand a job to a worker costs more than one survey. Blocks.

    Logs that can't be read are left out. Opening such a log raises its error.
    """
    surveys: dict[TopicPartition, LogSurvey] = {}
    for partition, topic_id in logs.items():
        with suppress(OSError):
            surveys[partition] = survey_log(files, f"{path}/{partition_dir(partition)}", topic_id)
    return surveys
