"""A log's compacting half: rounds, one at a time, and that a log which is cut or closed leaves none behind."""

from __future__ import annotations

from blumfeld.spi.compaction import CompactionAbandonedError, CompactionRequest, CompactionResult
from blumfeld.spi.completion import Completion
from blumfeld_storage_local.compaction.swapping import CompactionRound
from blumfeld_storage_local.logs.log_state import LogState


class CompactingHalf(LogState):
    """What of ``PartitionLog`` compacts."""

    def compact(self, request: CompactionRequest) -> Completion[CompactionResult]:
        """Do a round; see the contract.

        :raises ValueError: one runs already
        """
        self._check()
        if self._round is not None:
            raise ValueError(f"{self.directory} is being compacted")
        done: Completion[CompactionResult] = Completion()
        if self.moving:
            done.fail(CompactionAbandonedError("the log moves to another directory"))
            return done
        self._round = CompactionRound(
            self._home, self._segments, request, self._compacted, self.config.file_delete_delay_ms
        )
        self._runtime.spawn(self._run_round(self._round, done), f"compact {self.directory}")
        return done

    def leave_compaction(self) -> None:
        """A round that runs comes to nothing; one that has swapped is finished here and now. Raises ``OSError``."""
        self._leave_compaction()

    async def _run_round(self, round_: CompactionRound, done: Completion[CompactionResult]) -> None:
        try:
            result = await round_.run()
        except (OSError, CompactionAbandonedError) as error:
            self._round = None
            done.fail(error)
        else:
            self._round = None
            done.complete(result)

    def _compacted(self, result: CompactionResult) -> None:
        self.names_unsynced = True
        self.cleaned_end_offset = min(result.cleaned_end_offset, self.written_end_offset)
        self._callbacks.cleaned(self)
