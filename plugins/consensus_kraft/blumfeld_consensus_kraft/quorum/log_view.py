"""The metadata log, as the state machine reads it."""

from __future__ import annotations

from blumfeld.metadata.image.checkpoint import CheckpointId
from blumfeld.spi.leader_epochs import EpochEnd
from blumfeld_consensus_kraft.raft.messages import SnapshotId
from blumfeld_consensus_kraft.raft_log import RaftLog


class RaftLogView:
    """Implements ``raft.log_view.LogView``."""

    def __init__(self, log: RaftLog) -> None:
        self._log = log

    @property
    def start_offset(self) -> int:
        """As ``LogView``."""
        return self._log.start_offset

    @property
    def end_offset(self) -> int:
        """As ``LogView``."""
        return self._log.end_offset

    @property
    def flushed_end_offset(self) -> int:
        """As ``LogView``."""
        return self._log.flushed_end

    @property
    def last_epoch(self) -> int:
        """As ``LogView``."""
        return self._log.last_epoch

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        """As ``LogView``."""
        return _snapshot(self._log.latest_snapshot_id)

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        """As ``LogView``."""
        return _snapshot(self._log.earliest_snapshot_id)

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """As ``LogView``."""
        return EpochEnd(*self._log.end_offset_for_epoch(epoch))


def _snapshot(found: CheckpointId | None) -> SnapshotId | None:
    # The bootstrap checkpoint ends at offset 0: it holds settings for a new log, and replaces nothing of it.
    return None if found is None or found.end_offset == 0 else SnapshotId(found.end_offset, found.epoch)
