"""Take the offsets of all logs down for their checkpoints, some logs in each turn of the loop.

Ten thousand logs in one go would hold up every request for tens of milliseconds. A log's offsets go into the
directory's checkpoints at once, so that a truncation between two turns can lower them there. High watermarks replace
the last ones together, at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from blumfeld.spi.completion import Steps
from blumfeld.spi.storage import TopicPartition
from blumfeld_storage_local.directories.directory_logs import DirectoryLogs
from blumfeld_storage_local.logs.partition_log import LocalLog

STEP_LOGS = 100
"""Logs, or high watermarks, that one step takes down: 0.1 to 0.2 ms."""


class CheckpointRound:
    """One checkpoint of a node."""

    def __init__(
        self,
        directories: Sequence[DirectoryLogs],
        logs: Iterable[LocalLog],
        high_watermarks: Iterable[tuple[TopicPartition, int]],
        lies_in: Callable[[TopicPartition], Sequence[DirectoryLogs | None]],
    ) -> None:
        """
        :param directories: those that are online
        :param lies_in: returns the directory of a partition's log, and the one that it moves to
        """
        self._logs = list(logs)
        self._high_watermarks = high_watermarks
        self._lies_in = lies_in
        self._by_directory: dict[DirectoryLogs, dict[TopicPartition, int]] = {at: {} for at in directories}
        self._deleted: set[TopicPartition] = set()

    def steps(self) -> Steps[None]:
        """Take the offsets down; then the files are written soon. Few logs take one step."""
        for number, log in enumerate(self._logs, start=1):
            at = self._lies_in(log.partition)[0] if log.is_open else None
            if at is not None and at.online:
                at.note_offsets(log)
            if not number % STEP_LOGS:
                yield None
        for number, (partition, offset) in enumerate(self._high_watermarks, start=1):
            if partition not in self._deleted:
                # A log that moves may go on in its new directory before the next checkpoint.
                for directory in self._lies_in(partition):
                    if directory in self._by_directory:
                        self._by_directory[directory][partition] = offset
            if not number % STEP_LOGS:
                yield None
        for at, offsets in self._by_directory.items():
            at.checkpoints.high_watermarks = offsets
            at.checkpoints.save_in_time()

    def forget(self, partition: TopicPartition) -> None:
        """Drop the offsets of a log that was deleted after this checkpoint began."""
        self._deleted.add(partition)
        for offsets in self._by_directory.values():
            offsets.pop(partition, None)
