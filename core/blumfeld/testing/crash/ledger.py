"""What a log was told, held against what a restart finds in it. Pure: tested without a disk."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from blumfeld.testing.storage_node import StoredBatch

Branch = list[StoredBatch]
"""All batches that a log held at one time, from offset 0 on, also those below its start."""


class FoundLog(msgspec.Struct, frozen=True):
    """A log as a restart found it."""

    log_start_offset: int
    end_offset: int
    batches: Sequence[StoredBatch]
    """From the one that holds the log start on."""


class Broken(AssertionError):  # noqa: N818 - a promise, not an error of ours
    """A promise about stored records was not kept; the message says which."""


class LogLedger:
    """What one log promised: written outlives the process, flushed outlives the power, and it is a prefix."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.current: Branch = []
        """With what is placed and not acknowledged yet: it may be there or not."""
        self.cut: list[Branch] = []
        """Branches that a truncation left: a power cut may bring one back, as far as nothing behind was flushed."""
        self.written_end = 0
        self.flushed_end = 0
        self.start_asked = 0
        """The log start that was asked for: none is beyond it."""
        self.start_kept = 0
        """The log start that is known to last: none is before it."""
        self.truncating = False
        self.cut_undone = False
        """A crash took a truncation back: leader epochs and snapshots, cut before the log, are behind it for good."""

    @property
    def end_offset(self) -> int:
        """Behind everything that was placed."""
        return self.current[-1].next_offset if self.current else 0

    def placed(self, batches: Sequence[StoredBatch]) -> None:
        """They are on their way."""
        self.current += batches

    def written(self, end_offset: int) -> None:
        """Everything below was acknowledged."""
        self.written_end = max(self.written_end, end_offset)

    def flushed(self, end_offset: int) -> None:
        """Everything below was said to last."""
        self.flushed_end = max(self.flushed_end, min(end_offset, self.written_end))

    def truncate(self, offset: int) -> None:
        """A cut begins: what is behind ``offset`` goes. :meth:`truncated` ends it."""
        self.cut.append(self.current)
        self.current = [batch for batch in self.current if batch.next_offset <= offset]
        self.written_end = self.end_offset
        self.flushed_end = min(self.flushed_end, self.end_offset)
        self.truncating = True

    def truncated(self) -> None:
        """The cut is done."""
        self.truncating = False

    def check(self, found: FoundLog, *, power_cut: bool) -> Branch:
        """The branch that the log is a prefix of, cut to what is left.

        :raises Broken: something that was promised is missing, or something is there that never was at that place
        """
        need = self.flushed_end if power_cut else self.written_end
        if found.end_offset < need:
            raise Broken(f"{self.name}: ends at {found.end_offset}, and {need} was promised: lost")
        if not self.start_kept <= found.log_start_offset <= max(self.start_asked, self.start_kept):
            raise Broken(
                f"{self.name}: starts at {found.log_start_offset}, not within {self.start_kept}..{self.start_asked}"
            )
        self._check_order(found)
        candidates = [self.current]
        if power_cut or self.truncating:
            candidates += reversed(self.cut if power_cut else self.cut[-1:])
        promised = [batch for batch in self.current if batch.next_offset <= need]
        for branch in candidates:
            left = [batch for batch in branch if batch.next_offset <= found.end_offset]
            if branch is self.current or left[: len(promised)] == promised:
                end = left[-1].next_offset if left else found.log_start_offset
                seen = [batch for batch in left if batch.next_offset > found.log_start_offset]
                if seen == list(found.batches) and end == found.end_offset:
                    return left
        raise Broken(f"{self.name}: {self._difference(found)}")

    def _check_order(self, found: FoundLog) -> None:
        offset = found.log_start_offset
        for at, batch in enumerate(found.batches):
            if (batch.base_offset > offset) if at == 0 else (batch.base_offset != offset):
                raise Broken(f"{self.name}: the batch at {batch.base_offset} follows {offset}: not in order")
            offset = batch.next_offset
        if offset != found.end_offset:
            raise Broken(f"{self.name}: the last batch ends at {offset}, the log at {found.end_offset}")

    def _difference(self, found: FoundLog) -> str:
        expected = {batch.base_offset: batch for batch in self.current}
        for batch in found.batches:
            if expected.get(batch.base_offset) != batch:
                return f"at {batch.base_offset} is a batch that was not written there"
        return f"ends at {found.end_offset}, within a batch or behind all that was written"

    def survived(self, branch: Branch, found: FoundLog, *, power_cut: bool) -> None:
        """The check held: this is the log now."""
        self.cut_undone |= branch != self.current[: len(branch)]
        self.current = list(branch)
        self.written_end = found.end_offset
        self.flushed_end = min(self.flushed_end, found.end_offset)
        self.truncating = False
        if power_cut:
            self.cut.clear()
