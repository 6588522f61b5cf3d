"""A log of the metadata quorum as a list, with what of it survives a power cut."""

from __future__ import annotations

from typing import NamedTuple

from blumfeld.spi.leader_epochs import EpochEnd
from blumfeld_consensus_kraft.raft.messages import SnapshotId


class Entry(NamedTuple):
    """One record."""

    epoch: int
    value: object


class ModelLog:
    """Implements ``LogView``. Entries are numbered from ``start_offset`` on."""

    def __init__(self) -> None:
        self.start_offset = 0
        self.entries: list[Entry] = []
        self.flushed_end_offset = 0
        self.snapshots: list[SnapshotId] = []

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.entries)

    @property
    def last_epoch(self) -> int:
        return self.entries[-1].epoch if self.entries else self._start_epoch

    @property
    def _start_epoch(self) -> int:
        return next(
            (snapshot.epoch for snapshot in self.snapshots if snapshot.end_offset == self.start_offset), 0
        )

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return self.snapshots[-1] if self.snapshots else None

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        return self.snapshots[0] if self.snapshots else None

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        epoch_end = EpochEnd(self._start_epoch, self.start_offset)
        for offset, entry in enumerate(self.entries, start=self.start_offset):
            if entry.epoch > epoch:
                break
            epoch_end = EpochEnd(entry.epoch, offset + 1)
        return epoch_end

    def at(self, offset: int) -> Entry:
        return self.entries[offset - self.start_offset]

    def epoch_before(self, end_offset: int) -> int:
        """Epoch of the record before ``end_offset``."""
        return self._start_epoch if end_offset == self.start_offset else self.at(end_offset - 1).epoch

    def read(self, offset: int, count: int) -> list[Entry]:
        at = offset - self.start_offset
        return self.entries[at : at + count]

    def append(self, entries: list[Entry]) -> None:
        for entry in entries:
            assert entry.epoch >= self.last_epoch, "epochs of a log never fall"
            self.entries.append(entry)

    def truncate(self, end_offset: int) -> None:
        del self.entries[end_offset - self.start_offset :]
        self.flushed_end_offset = min(self.flushed_end_offset, end_offset)

    def flush(self) -> None:
        self.flushed_end_offset = self.end_offset

    def snapshot(self, end_offset: int) -> None:
        """Everything below ``end_offset`` is in a snapshot, and gone from the log."""
        epoch = self.epoch_before(end_offset)
        self.entries = self.entries[end_offset - self.start_offset :]
        self.start_offset = end_offset
        self.snapshots = [SnapshotId(end_offset, epoch)]

    def install(self, snapshot: SnapshotId) -> None:
        """Begin behind a snapshot of the leader."""
        self.entries = []
        self.start_offset = self.flushed_end_offset = snapshot.end_offset
        self.snapshots = [snapshot]

    def crash(self) -> None:
        """A power cut: what was not flushed is gone."""
        del self.entries[max(self.flushed_end_offset - self.start_offset, 0) :]
