"""What a log is made from when it is opened, and what it tells its storage later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from blumfeld.config.values import TopicConfig
from blumfeld.spi.storage import LogListener, TopicPartition
from blumfeld_storage_local.directory import LogDirectory
from blumfeld_storage_local.segment_list import SegmentList


class ClosedLog(Protocol):
    """What a storage reads of a log that has just been closed or deleted."""

    partition: TopicPartition
    log_start_offset: int
    clean: bool
    """Closed without an error, and every index file is complete."""

    @property
    def recovery_point(self) -> int:
        """Everything below this offset survives a power cut, indexes of sealed segments included."""
        ...

    @property
    def waits_for_last_sync(self) -> bool:
        """A sync that was under way at the close has not ended yet."""
        ...

    async def last_sync(self) -> None:
        """Wait for that sync. Only then the recovery point is final."""
        ...


class LogCallbacks(msgspec.Struct, frozen=True):
    """What a log tells its storage."""

    truncating: Callable[[TopicPartition, int], None]
    """Called before records from that offset on are dropped: the checkpoints must not promise them any more."""
    closed: Callable[[ClosedLog], None]
    cleaned: Callable[[TopicPartition, int], None]
    """Called with each new ``cleaned_end_offset``: the storage keeps it over restarts."""


class OpenedLog(msgspec.Struct, frozen=True, kw_only=True):
    """What a log is made from, once its files are known to be sound."""

    home: LogDirectory
    partition: TopicPartition
    segments: SegmentList
    config: TopicConfig
    listener: LogListener
    callbacks: LogCallbacks
    log_start_offset: int
    flushed_end_offset: int
    cleaned_end_offset: int
    names_unsynced: bool
    """Files were made in the log's directory that no sync has covered yet."""
    topic_id_unsynced: bool
    """No sync is known to have covered ``partition.metadata``."""
