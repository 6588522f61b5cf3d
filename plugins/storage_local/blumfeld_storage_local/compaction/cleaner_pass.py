"""One cleaner pass, on the loop: let a worker process write new segments, then swap them for the old ones.

The steps of the swap. Each is durable before the next begins:

1. the plan of the swap is written;
2. all ``.cleaned`` files become ``.swap``, but for the log of the first new segment;
3. that log becomes ``.swap`` too. This one rename makes the swap happen, for readers and for a start after a crash;
4. the old files become ``.deleted``;
5. the ``.swap`` files get their final names, and the plan is removed.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator, Sequence
from enum import Enum

from blumfeld.log.segments.file_names import Mark, segment_name
from blumfeld.spi.compaction import CompactionAbandonedError, CompactionRequest, CompactionResult
from blumfeld_storage_local.compaction.cleaner_worker import (
    CleanedSegment,
    CompactionJob,
    CompactionOutcome,
    compact_files,
    remove_leftovers,
)
from blumfeld_storage_local.compaction.swap_plan import SEGMENT_SUFFIXES, SWAP_PLAN, SwapPlan
from blumfeld_storage_local.directory import LogDirectory
from blumfeld_storage_local.segment_list import SegmentList
from blumfeld_storage_local.segments.segment import Segment

RENAMES_AT_ONCE = 32
"""Renames, some 10 µs each, before the loop may serve requests again."""


class _Then(Enum):
    """The step that must come before the next one of a swap."""

    SYNC = "the names so far must last"
    PAUSE = "the loop may look at something else"


class CleanerPass:
    """One pass over one log. It runs on the loop; syncs and the cleaning itself run elsewhere.

    :param swapped: called once, when the swap is durable
    """

    def __init__(
        self,
        home: LogDirectory,
        segments: SegmentList,
        request: CompactionRequest,
        swapped: Callable[[CompactionResult], None],
        delete_delay_ms: int,
    ) -> None:
        self.end_offset = request.end_offset
        """The pass never touches this offset or any above it."""
        self._home = home
        self._runtime = home.runtime
        self._files = home.files
        self._directory = segments.directory
        self._segments = segments
        self._request = request
        self._swapped = swapped
        self._delete_delay_ms = delete_delay_ms
        self._left = False
        self._working: asyncio.Future[CompactionOutcome] | None = None
        self._steps: Iterator[_Then] | None = None
        """Steps 4 and 5 of a swap that has happened."""

    async def run(self) -> CompactionResult:
        """Do the pass.

        :raises CompactionAbandonedError: :meth:`leave` was called before the swap had happened
        :raises OSError: either the log is as it was before, or the directory is offline
        """
        request = self._request
        sealed = [s for s in list(self._segments)[:-1] if s.next_offset <= request.end_offset]
        if not sealed:
            return _nothing_done(request)
        try:
            outcome = await self._work(sealed)
            self._check()
            if outcome.segments:
                await self._swap(outcome)
            else:
                self._swapped(outcome.result)
        except OSError as error:
            self._check()
            await self._runtime.offload(remove_leftovers, self._files, self._directory)
            raise OSError(error.errno, f"not compacted: {error.strerror}", error.filename) from error
        return outcome.result

    def leave(self, *, finish: bool = True) -> None:
        """End the pass because the log is about to be truncated, moved or closed.

        A swap that has happened is finished here and now, blocking: whatever comes next must find every segment under
        its own name. Otherwise the pass comes to nothing.

        :param finish: False: don't even finish a swap, because the whole directory goes
        :raises OSError: the directory is offline
        """
        self._left = True
        if self._working is not None:
            self._working.cancel()
        steps, self._steps = self._steps, None
        if steps is None or not finish:
            return
        self._home.check()
        try:
            self._files.sync_dir(self._directory)
            for then in steps:
                if then is _Then.SYNC:
                    self._files.sync_dir(self._directory)
        except OSError as error:
            self._home.fail(error)
            raise

    def _check(self) -> None:
        """Raise if the pass was left, or its directory is offline."""
        self._home.check()
        if self._left:
            raise CompactionAbandonedError

    async def _work(self, sealed: Sequence[Segment]) -> CompactionOutcome:
        sources = tuple((segment.base_offset, segment.next_offset) for segment in sealed)
        job = CompactionJob(self._directory, sources, self._request)
        self._working = asyncio.ensure_future(self._runtime.offload_process(compact_files, job))
        try:
            return await self._working
        except asyncio.CancelledError:
            if self._left:
                raise CompactionAbandonedError from None
            raise
        except OSError:
            raise
        except Exception as error:
            # A defect in the cleaning costs this log its compaction, and no other log anything.
            raise OSError(errno.EINVAL, f"{type(error).__name__}: {error}", self._directory) from error
        finally:
            self._working = None

    # The swap

    async def _swap(self, outcome: CompactionOutcome) -> None:
        cleaned = outcome.segments
        plan = f"{self._directory}/{SWAP_PLAN}"
        await self._runtime.offload(self._files.write_atomically, plan, _plan(cleaned).encode())
        self._check()
        names = [segment_name(s.base_offset, suffix) for s in cleaned for suffix in s.suffixes]
        last = segment_name(cleaned[0].base_offset)
        names.remove(last)
        for count, name in enumerate(names, start=1):
            self._rename(name + Mark.CLEANED.value, name + Mark.SWAP.value)
            if count % RENAMES_AT_ONCE == 0:
                await asyncio.sleep(0)
                self._check()
        await self._sync()
        self._check()
        self._happen(last, outcome)
        await self._finish()

    def _happen(self, last: str, outcome: CompactionOutcome) -> None:
        """Do step 3: readers see the new segments at once, and a start sees them after the next sync."""
        replaced = [base for cleaned in outcome.segments for base in cleaned.replaced]
        first = self._segments.index_of(replaced[0])
        if [
            segment.base_offset for segment in list(self._segments)[first : first + len(replaced)]
        ] != replaced:
            raise CompactionAbandonedError
        self._rename(last + Mark.CLEANED.value, last + Mark.SWAP.value)
        made = [self._new_segment(cleaned) for cleaned in outcome.segments]
        self._segments.replace(first, len(replaced), made)
        self._steps = self._finishing(outcome, made)

    def _new_segment(self, cleaned: CleanedSegment) -> Segment:
        segment = Segment(self._files, self._directory, cleaned.base_offset, cleaned.base_offset)
        segment.size = cleaned.size_bytes
        segment.mark = Mark.SWAP
        return segment

    def _finishing(self, outcome: CompactionOutcome, made: Sequence[Segment]) -> Iterator[_Then]:
        yield _Then.SYNC
        self._swapped(outcome.result)
        deleted: list[str] = []
        for count, name in enumerate(_plan(outcome.segments).gone, start=1):
            path = f"{self._directory}/{name}"
            if self._files.exists(path):
                self._files.rename(path, path + Mark.DELETED.value)
                deleted.append(path + Mark.DELETED.value)
            if count % RENAMES_AT_ONCE == 0:
                yield _Then.PAUSE
        yield _Then.SYNC  # or a power cut could keep an old segment beside the one that replaces it
        for cleaned, segment in zip(outcome.segments, made, strict=True):
            for suffix in cleaned.suffixes:
                name = segment_name(cleaned.base_offset, suffix)
                path = f"{self._directory}/{name}"
                if cleaned.base_offset in cleaned.replaced and self._files.exists(path):
                    # A rename over the old file would free its blocks on the loop: 4 ms for 16 MiB.
                    self._files.rename(path, path + Mark.DELETED.value)
                    deleted.append(path + Mark.DELETED.value)
                self._rename(name + Mark.SWAP.value, name)
            segment.mark = Mark.NONE
            yield _Then.PAUSE
        yield _Then.SYNC
        self._files.unlink(f"{self._directory}/{SWAP_PLAN}")
        if deleted:
            self._home.remove_later(deleted, self._delete_delay_ms)

    async def _finish(self) -> None:
        while (steps := self._steps) is not None:
            try:
                then = next(steps, None)
            except OSError as error:
                self._home.fail(error)
                raise
            if then is _Then.SYNC:
                await self._sync()
            elif then is _Then.PAUSE:
                await asyncio.sleep(0)
            else:
                self._steps = None

    def _rename(self, old_name: str, new_name: str) -> None:
        self._files.rename(f"{self._directory}/{old_name}", f"{self._directory}/{new_name}")

    async def _sync(self) -> None:
        try:
            await self._runtime.offload(self._files.sync_dir, self._directory)
        except OSError as error:
            if self._left:
                return  # leave() has synced the directory, or the directory was deleted
            self._home.fail(error)
            raise


def _plan(cleaned: Sequence[CleanedSegment]) -> SwapPlan:
    """Return the plan: which new segments come, and which old files go.

    An old file goes unless a new file takes its name.
    """
    targets = tuple(segment.base_offset for segment in cleaned)
    gone = [
        segment_name(base, suffix)
        for segment in cleaned
        for base in segment.replaced
        for suffix in SEGMENT_SUFFIXES
        if base != segment.base_offset or suffix not in segment.suffixes
    ]
    return SwapPlan(targets, tuple(gone))


def _nothing_done(request: CompactionRequest) -> CompactionResult:
    return CompactionResult(
        cleaned_end_offset=request.first_dirty_offset,
        bytes_read=0,
        bytes_before=0,
        bytes_after=0,
        records_read=0,
        records_kept=0,
        keys=0,
        segments_before=0,
        segments_after=0,
    )
