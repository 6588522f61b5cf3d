"""Logs of which older records lie in a remote store (KIP-405), and the storage that makes them.

The records below ``local_log_start_offset`` lie elsewhere. The log still begins at ``log_start_offset``: a reader sees
one log. Without these parts a log is whole on its own disk.
"""

from __future__ import annotations

from typing import Protocol, cast

import msgspec

from blumfeld.config.values import TopicConfig
from blumfeld.spi.completion import Completion
from blumfeld.spi.leader_epochs import EpochEntry
from blumfeld.spi.storage import LogRead, LogStorage, PartitionLog, SegmentedLog, TopicPartition


class LogStartState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a log at an offset whose records below lie in the remote store: a replica may begin there."""

    offset: int
    """The end of a copied segment."""
    epochs: tuple[EpochEntry, ...]
    """Leader epochs of the records below the offset, oldest first."""
    producers: bytes | None
    """The bytes of ``<offset>.snapshot``; ``None`` if no producer is known."""


class RemoteRead(Completion[LogRead]):
    """What ``TieredLog.read`` returns for bytes that the store has."""

    __slots__ = ()

    def give_up(self) -> None:
        """Nobody needs the bytes any more: the reader has gone. Complete soon, in any way; what is given then is
        released. A read that is done does nothing."""
        raise NotImplementedError


class TieredLog(SegmentedLog, Protocol):
    """A log that goes on in a remote store. The members of ``SegmentedLog`` change their meaning in these points:

    * ``log_start_offset`` is the start of the whole log. ``segments``, ``size_bytes`` and ``batches`` are of the local
      part; ``batches`` below it begins at :attr:`local_log_start_offset`.
    * ``read``, ``offset_for_time`` and ``max_timestamp`` cover the whole log: what lies in the store comes by a
      completion, which fails with ``BrokerError`` KAFKA_STORAGE_ERROR if the store can't give it; the log doesn't go
      offline by that. A read is a :class:`RemoteRead`; if it takes longer than ``remote.fetch.max.wait.ms`` it
      completes with no parts. The broker limits the look-ups itself.
    * ``drop_segments`` moves the local start alone. ``advance_log_start`` below the local start moves the whole start
      alone, and above it both.
    * ``log_start_offset`` ≤ ``local_log_start_offset`` ≤ ``written_end_offset`` always holds.
    """

    local_log_start_offset: int
    """The first offset that lies on the local disk: ``EARLIEST_LOCAL`` of ListOffsets."""
    copied_end_offset: int
    """The store has every record of the present history below it, whole and verified; the local segments below it may
    go. -1 as long as that isn't known. ``LATEST_TIERED`` of ListOffsets is the offset before it."""

    def truncate_fully(self, start_offset: int, log_start_offset: int | None = None) -> None:
        """Drop everything that is local; the local part is empty and begins at ``start_offset``.

        :param log_start_offset: the start of the whole log: the store has what lies between. ``None``: nothing lies
            there, and both parts begin at ``start_offset``
        """
        ...

    def state_at(self, offset: int, leader_epoch: int) -> Completion[LogStartState]:
        """Find the state of the log at the end of the copied segment that has ``offset - 1`` in ``leader_epoch``. That
        may lie above ``offset``: another leader, with other segments, may have copied it. A follower begins there, near
        its leader's local start (KIP-405, OFFSET_MOVED_TO_TIERED_STORAGE).

        Fails with ``BrokerError``: KAFKA_STORAGE_ERROR if it can't be had now; the follower tries again.
        """
        ...


class TieringStorage(LogStorage, Protocol):
    """A storage that can keep a part of its logs in a remote store, for topics with ``remote.storage.enable``."""

    def log_with(self, partition: TopicPartition, log: PartitionLog, config: TopicConfig) -> PartitionLog:
        """The topic's configuration has changed: return the log that the broker uses from now on. It is ``log`` itself,
        a :class:`TieredLog` around it, or what was inside of ``log``. It has the same ends and the same local records;
        what is placed or being written goes on, and its outcome comes as if nothing had happened. The start of the
        whole log moves only when tiering ends, to the local start.

        Called in place of ``PartitionLog.reconfigure``, with the log that :meth:`open_log` or the last call gave. The
        broker doesn't touch the log before again. Not called for a partition that is offline.

        :raises OSError: the partition goes offline with KAFKA_STORAGE_ERROR, as from any method of a log
        """
        ...


def tiered(log: PartitionLog) -> TieredLog | None:
    """The same log, if a part of it may lie in a remote store."""
    return cast("TieredLog", log) if hasattr(log, "local_log_start_offset") else None


def local_log_start_offset(log: PartitionLog) -> int:
    """The first offset of ``log`` that lies on the local disk: of a log without a remote part, its start."""
    return getattr(log, "local_log_start_offset", log.log_start_offset)


def tiering(storage: LogStorage) -> TieringStorage | None:
    """The same storage, if it can keep a part of its logs in a remote store."""
    return cast("TieringStorage", storage) if hasattr(storage, "log_with") else None
