"""Compares what a log promised with what a restart finds in it. Pure: tested without a disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from blumfeld_kit.storage_driver.compaction_model import content, difference
from blumfeld_kit.storage_driver.node import StoredBatch

Branch = list[StoredBatch]
"""All batches of a log at one time, from offset 0 on, also those below the log start."""


class Cleaned(msgspec.Struct, frozen=True):
    """The result of compaction so far."""

    removed: frozenset[int] = frozenset()
    """Offsets of removed records."""
    end_offset: int = 0
    """Below this offset, offsets may be missing and batches may be rewritten."""

    def cut(self, end_offset: int) -> Cleaned:
        """Return the same for a log that was truncated there."""
        left = frozenset(offset for offset in self.removed if offset < end_offset)
        return Cleaned(left, min(self.end_offset, end_offset))


class FoundLog(msgspec.Struct, frozen=True):
    """A log as a restart found it."""

    log_start_offset: int
    end_offset: int
    batches: Sequence[StoredBatch]
    """The batches, from the one that holds the log start on."""


class Broken(AssertionError):  # noqa: N818 - a promise, not an error of ours
    """A promise about stored records was not kept. The message says which."""


class LogPromises:
    """The promises of one log: written batches outlive the process, flushed ones the power, and the log is a prefix.

    :param compacts: the topic is compacted. After a power cut recovery can't tell a hole that compaction left from
        segments that the cut took, so any batches that were not flushed may be missing
    """

    def __init__(self, name: str, *, compacts: bool = False) -> None:
        self.name = name
        self.compacts = compacts
        self.current: Branch = []
        """All batches, also those that are placed and not acknowledged yet: a restart may find these or not."""
        self.base_offset = 0
        """The offset at which an empty log begins: 0, or the start after a full truncation."""
        self.cut: list[tuple[Branch, Cleaned]] = []
        """Branches that truncations cut. A power cut may bring one back while nothing behind the cut was flushed."""
        self.cleaned = Cleaned()
        """The result of the completed cleaner passes. Each pass removed all that those before it did, and more."""
        self.uncleaned: list[Cleaned] = []
        """Results before the last passes: a power cut may bring the records in between back."""
        self.cleaning: list[Cleaned] = []
        """Results that a running pass may have reached."""
        self.holes_to = 0
        """Below this offset a power cut left holes in a compacted log."""
        self.written_end = 0
        self.flushed_end = 0
        self.start_asked = 0
        """The highest log start that was requested. A restart finds none above it."""
        self.start_kept = 0
        """The highest log start that is durable. A restart finds none below it."""
        self.truncating = False
        self.cut_undone = False
        """A crash undid a truncation. Leader epochs and snapshots, which were cut before the log, then lag behind it
        for good.
        """

    @property
    def end_offset(self) -> int:
        """The offset behind every placed batch."""
        return max(self.base_offset, self.current[-1].next_offset if self.current else 0)

    def placed(self, batches: Sequence[StoredBatch]) -> None:
        """Note batches that are placed."""
        self.current += batches

    def written(self, end_offset: int) -> None:
        """Note that every batch below the offset is acknowledged."""
        self.written_end = max(self.written_end, end_offset)

    def refused(self, end_offset: int) -> None:
        """Note that placed batches behind the offset are given up: their write failed."""
        self.current = [batch for batch in self.current if batch.next_offset <= end_offset]

    def flushed(self, end_offset: int) -> None:
        """Note that every batch below the offset is durable. An offset at or below the log's first batch says nothing
        of it.
        """
        if not self.current or end_offset <= self.current[0].base_offset:
            return
        self.flushed_end = max(self.flushed_end, min(end_offset, self.written_end))

    def truncate(self, offset: int) -> None:
        """Begin a truncation that drops every batch behind ``offset``. :meth:`truncated` ends it."""
        self._cut([batch for batch in self.current if batch.next_offset <= offset])
        self.written_end = self.end_offset
        self.flushed_end = min(self.flushed_end, self.end_offset)

    def truncate_fully(self, start_offset: int) -> None:
        """Begin a truncation that drops everything and restarts at ``start_offset``. :meth:`truncated` ends it."""
        self._cut([])
        self.base_offset = self.start_asked = start_offset
        self.written_end = self.flushed_end = self.start_kept = 0

    def _cut(self, left: Branch) -> None:
        self.base_offset = 0
        self.cut.append((self.current, self.cleaned))
        self.current = left
        self.truncating = True
        end_offset = left[-1].next_offset if left else 0
        self.cleaned = self.cleaned.cut(end_offset)

    def truncated(self) -> None:
        """End the truncation."""
        self.truncating = False
        self.written_end = self.end_offset

    def compact(self, removed: Iterable[int], end_offset: int, bases: Iterable[int]) -> None:
        """Begin a cleaner pass that is to remove these records. :meth:`compacted` ends it.

        :param bases: base offsets of the segments that are read. The result of the first ones may be there before the
            rest
        """
        gone = frozenset(removed)
        self.cleaning = [
            Cleaned(self.cleaned.removed | {offset for offset in gone if offset < base}, end_offset)
            for base in sorted({*bases, end_offset})
        ]

    def compacted(self) -> None:
        """End the cleaner pass."""
        self.uncleaned += [self.cleaned, *self.cleaning[:-1]]
        self.cleaned = self.cleaning[-1]
        self.cleaning = []

    def check(self, found_log: FoundLog, *, power_cut: bool) -> Branch:
        """Return the branch that the log is a prefix of, cut to the log's end.

        :raises Broken: a promised batch is missing, or a batch is there that never was at that place
        """
        need = self.flushed_end if power_cut else self.written_end
        if found_log.end_offset < need and not self._fell_out(found_log.end_offset, need):
            raise Broken(
                f"{self.name}: the log ends at offset {found_log.end_offset}; "
                f"everything below {need} was {'flushed' if power_cut else 'acknowledged'} and must be there"
            )
        if not self.start_kept <= found_log.log_start_offset <= max(self.start_asked, self.start_kept):
            raise Broken(
                f"{self.name}: the log starts at {found_log.log_start_offset}; "
                f"allowed: {self.start_kept} to {self.start_asked}"
            )
        self._check_order(found_log, holes=self.compacts and power_cut)
        return self._match(found_log, power_cut)[0]

    def _fell_out(self, start: int, end: int) -> bool:
        """Return whether compaction removed every record there. The log end may then go back, as in Kafka."""
        return set(range(start, end)) <= self.cleaned.removed

    def _match(self, found_log: FoundLog, power_cut: bool) -> tuple[Branch, Cleaned]:
        need = self.flushed_end if power_cut else self.written_end
        kept = [batch for batch in self.current if batch.next_offset <= need]
        for branch, cleaned in self._candidates(power_cut):
            left = [batch for batch in branch if batch.next_offset <= found_log.end_offset]
            if self.compacts and power_cut:
                there = {batch.base_offset for batch in found_log.batches}
                left = [batch for batch in left if batch.next_offset <= need or batch.base_offset in there]
            if branch is not self.current and left[: len(kept)] != kept:
                continue
            if not left and self._may_be_empty(found_log, branch, power_cut):
                return left, cleaned
            ends = bool(left) and left[-1].next_offset == found_log.end_offset
            ends |= branch is self.current and self.end_offset == found_log.end_offset <= self.holes_to
            if (ends or (self.compacts and power_cut)) and _holds(left, cleaned, found_log):
                return left, cleaned
        raise Broken(f"{self.name}: {self._difference(found_log)}")

    def _candidates(self, power_cut: bool) -> Iterator[tuple[Branch, Cleaned]]:
        """Yield the branches that the log may be a prefix of, the likeliest first."""
        undone = [*reversed(self.uncleaned)] if power_cut else []
        for cleaned in (self.cleaned, *reversed(self.cleaning), *undone):
            yield self.current, cleaned
        if power_cut or self.truncating:
            for branch, cleaned in reversed(self.cut if power_cut else self.cut[-1:]):
                for choice in (cleaned, *undone):
                    yield branch, choice

    def _may_be_empty(self, found_log: FoundLog, branch: Branch, power_cut: bool) -> bool:
        """Return whether the log may be empty. It then starts as before a truncation, or as after it."""
        if found_log.batches or found_log.end_offset != found_log.log_start_offset:
            return False
        sure = branch is self.current and not (power_cut or self.truncating)
        return found_log.end_offset in (self.base_offset, self.start_asked, self.start_kept) or not sure

    def _check_order(self, found_log: FoundLog, *, holes: bool) -> None:
        """Check that batches follow each other without holes, except where compaction was."""
        rounds = (self.cleaned, *self.cleaning, *self.uncleaned, *(cleaned for _, cleaned in self.cut))
        holes_to = max(self.holes_to, *(cleaned.end_offset for cleaned in rounds))
        if holes:
            holes_to = found_log.end_offset + 1
        offset = found_log.log_start_offset
        for at, batch in enumerate(found_log.batches):
            hole = batch.base_offset > offset and offset >= holes_to
            if hole or (at > 0 and batch.base_offset < offset):
                raise Broken(
                    f"{self.name}: a batch begins at {batch.base_offset} where {offset} was expected: not in order"
                )
            offset = batch.next_offset
        if offset != found_log.end_offset and offset >= holes_to:
            raise Broken(
                f"{self.name}: the last batch ends at {offset}, but the log says {found_log.end_offset}"
            )

    def _difference(self, found_log: FoundLog) -> str:
        expected = {batch.base_offset: batch for batch in self.current}
        for batch in found_log.batches:
            there = expected.get(batch.base_offset)
            if there is None or (there != batch and there.base_offset >= self.cleaned.end_offset):
                return f"the batch at {batch.base_offset} is not one that was written there"
        if self.cleaned.end_offset or self.cleaning:
            return f"the batches are neither those before compaction nor those after it: {_in_words(self, found_log)}"
        return f"the log ends at {found_log.end_offset}, inside a batch or behind everything that was written"

    def survived(self, branch: Branch, found_log: FoundLog, *, power_cut: bool) -> None:
        """Take the found log as the present one, after a check that held."""
        _, self.cleaned = self._match(found_log, power_cut)
        self.cleaned = self.cleaned.cut(found_log.end_offset)
        self.cleaning = []
        self.cut_undone |= branch != self.current[: len(branch)]
        self.current = list(branch)
        self.base_offset = found_log.end_offset
        if self.compacts and power_cut:
            self.holes_to = found_log.end_offset
            self.cut_undone = True
        self.written_end = found_log.end_offset
        self.flushed_end = min(self.flushed_end, found_log.end_offset)
        self.truncating = False
        if power_cut:
            self.cut.clear()
            self.uncleaned.clear()


def _holds(left: Branch, cleaned: Cleaned, found_log: FoundLog) -> bool:
    """Return whether the log holds these batches from its start on, without the records that compaction removed."""
    seen = [batch for batch in left if batch.next_offset > found_log.log_start_offset]
    if not cleaned.end_offset:
        return seen == list(found_log.batches)
    return _cleaned_difference(seen, cleaned, found_log) is None


def _cleaned_difference(seen: Branch, cleaned: Cleaned, found_log: FoundLog) -> str | None:
    tail = [batch for batch in seen if batch.base_offset >= cleaned.end_offset]
    if tail != [batch for batch in found_log.batches if batch.base_offset >= cleaned.end_offset]:
        return f"the batches from {cleaned.end_offset} on differ"
    return difference(
        [content(batch.data) for batch in found_log.batches if batch.base_offset < cleaned.end_offset],
        [content(b.data).without(cleaned.removed) for b in seen if b.base_offset < cleaned.end_offset],
    )


def _in_words(promises: LogPromises, found_log: FoundLog) -> str:
    seen = [b for b in promises.current if found_log.log_start_offset < b.next_offset <= found_log.end_offset]
    said = [
        _cleaned_difference(seen, cleaned, found_log) for cleaned in (promises.cleaned, *promises.cleaning)
    ]
    return "; or ".join(text for text in said if text)
