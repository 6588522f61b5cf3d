"""Take the offsets of all logs down for their checkpoints, some logs in each turn of the loop.

Ten thousand logs in one go would hold up every request for tens of milliseconds. A log's offsets go into the
directory's checkpoints at once, so that a truncation between two turns can lower them there. High watermarks replace
the last ones together, at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from blumfeld.spi.storage import TopicPartition
from blumfeld_storage_local.directories.directory_logs import DirectoryLogs
from blumfeld_storage_local.logs.partition_log import LocalLog

NOTED_AT_ONCE = 500
"""Logs, or high watermarks, that one turn takes down: half a millisecond to one."""


class CheckpointRound:
    """One checkpoint of a node. With few logs it takes one :meth:`step`."""

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
        self._logs = iter(list(logs))
        self._high_watermarks = iter(high_watermarks)
        self._lies_in = lies_in
        self._by_directory: dict[DirectoryLogs, dict[TopicPartition, int]] = {at: {} for at in directories}
        self._deleted: set[TopicPartition] = set()

    def step(self) -> bool:
        """Take some offsets down, and return whether there are more. If not, the files are written soon."""
        taken = 0
        for log in islice(self._logs, NOTED_AT_ONCE):
            taken += 1
            at = self._lies_in(log.partition)[0] if log.is_open else None
            if at is not None and at.online:
                at.note_offsets(log)
        for partition, offset in islice(self._high_watermarks, NOTED_AT_ONCE - taken):
            taken += 1
            if partition in self._deleted:
                continue
            # A log that moves may go on in its new directory before the next checkpoint.
            for directory in self._lies_in(partition):
                if directory in self._by_directory:
                    self._by_directory[directory][partition] = offset
        if taken == NOTED_AT_ONCE:
            return True
        for at, offsets in self._by_directory.items():
            at.checkpoints.high_watermarks = offsets
            at.checkpoints.save_in_time()
        return False

    def forget(self, partition: TopicPartition) -> None:
        """Drop the offsets of a log that was deleted after this checkpoint began."""
        self._deleted.add(partition)
        for offsets in self._by_directory.values():
            offsets.pop(partition, None)
