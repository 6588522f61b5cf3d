"""The log as the state machine reads it. ``RaftLog`` and the simulations' lists implement it."""

from __future__ import annotations

from typing import Protocol

from blumfeld.spi.leader_epochs import EpochEnd
from blumfeld_consensus_kraft.raft.messages import SnapshotId


class LogView(Protocol):
    """The log as it is now. Reading it costs no I/O."""

    @property
    def start_offset(self) -> int:
        """Offset of the first record; records below are in a snapshot."""
        ...

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        ...

    @property
    def flushed_end_offset(self) -> int:
        """Everything below is on the device."""
        ...

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record, or of the snapshot that an empty log begins behind; 0 if there is neither."""
        ...

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        """The newest finished snapshot."""
        ...

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        """The oldest finished snapshot."""
        ...

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """Returns the largest epoch of the log that is not above ``epoch``, and where it ends.

        Where all epochs of the log are above it: the log's start, with the epoch of the snapshot before it (0 if there
        is none).
        """
        ...
