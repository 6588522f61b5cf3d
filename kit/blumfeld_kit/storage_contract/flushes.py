"""The part of the storage contract about flushes: what they cover, when they end, which outcomes wait for them."""

from __future__ import annotations

import errno

from blumfeld.spi.completion import Completion
from blumfeld.spi.storage import WriteOutcome
from blumfeld_kit.fakes.files import Adversary, Fault
from blumfeld_kit.storage_contract.kit import StorageKit
from blumfeld_kit.storage_driver.node import Log, Node, make_batch

SYNC_MS = 10
"""Duration of a sync in these tests, so that calls come while it runs."""


class StorageFlushes(StorageKit):
    """The flush part of ``StorageContract``."""

    def test_flush_reports_the_flushed_end(self, log: Log) -> None:
        """A flush returns the flushed end offset: at least the written end at the time of the call."""
        log.fill(2, 2)
        assert log.flush() == 4
        assert log.log.flushed_end_offset == 4
        assert log.flush() == 4

    def test_every_flush_covers_what_was_written_before_it(self, node: Node, log: Log) -> None:
        """A flush that is asked for while a sync runs covers what was written since that sync began."""
        self.need_simulated_disk(node)
        flushes = _flush_three_times(log)
        node.runtime.advance(20 * SYNC_MS)
        for written_end, flush in flushes:
            assert flush.done, "a flush that was asked for while a sync ran never completed"
            assert flush.result() >= written_end, (
                "a flush completed without a sync of what was written before it"
            )
        assert log.log.flushed_end_offset == 3

    def test_every_flush_that_waits_for_a_failing_sync_fails(self, node: Node, log: Log) -> None:
        """A sync that fails fails every flush that waits, also those that were asked for while it ran. None of them
        stays open, and no error escapes from the storage's own tasks.
        """
        self.need_simulated_disk(node)
        node.runtime.disk.inject(Fault(operation="fdatasync"))
        flushes = _flush_three_times(log)
        node.runtime.advance(20 * SYNC_MS)
        for _, flush in flushes:
            assert flush.done, "a flush that waits for a failing sync never completed"
            assert isinstance(flush.error, OSError), "a flush succeeded though its sync had failed"
        assert log.log.flushed_end_offset == 0

    def test_a_close_ends_every_flush(self, node: Node, log: Log) -> None:
        """A flush that waits when the log is closed completes or fails. It doesn't stay open."""
        self.need_simulated_disk(node)
        flushes = _flush_three_times(log)
        log.log.close()
        node.runtime.advance(20 * SYNC_MS)
        ended = [flush.done for _, flush in flushes]
        assert all(ended), "a flush that waited when the log was closed never completed"
        assert node.open().spans() == [(0, 1), (1, 2), (2, 3)]

    def test_the_flushed_end_is_never_ahead_of_the_sync(self, node: Node, log: Log) -> None:
        """``flushed_end_offset`` counts a batch once a sync has covered it, not when it is written or a flush is asked
        for.
        """
        self.need_crash(node)
        node.runtime.offload_delay_ms = lambda: SYNC_MS
        _write(log, 2)
        log.log.flush()
        node.runtime.advance(5 * SYNC_MS)
        _write(log, 2)
        log.log.flush()
        node.runtime.run_turn()
        _write(log, 2)
        said = log.log.flushed_end_offset
        log = node.crash(luck=Adversary.LOSE).open()
        assert log.log.written_end_offset >= said, "flushed_end_offset counted what a power cut then took"

    def test_a_sync_proves_nothing_of_what_is_written_behind_a_cut(self, node: Node) -> None:
        """A log is cut while a sync runs, and other batches take the offsets. That sync doesn't make them flushed."""
        self.need_crash(node)
        for start in (None, 2, 20):
            cutting = Node(self.make_runtime, self.make_storage).start()
            log = cutting.open()
            log.fill(2, 4)
            cutting.runtime.offload_delay_ms = lambda: SYNC_MS
            log.log.flush()
            cutting.runtime.run_turn()
            if start is None:
                log.log.truncate_to(2)
            else:
                log.log.truncate_fully(start)
            _write(log, 3, seed=9)
            cutting.runtime.advance(SYNC_MS + 1)
            said = log.log.flushed_end_offset
            flushed = [batch for batch in log.read_all() if batch.next_offset <= said]
            left = cutting.crash(luck=Adversary.LOSE).open().read_all()
            assert left[: len(flushed)] == flushed, "flushed_end_offset counted what a power cut then took"
            cutting.end()

    def test_flush_messages_holds_the_outcome_until_the_sync(self, node: Node) -> None:
        """With ``flush.messages`` the outcome of a write comes after the sync: an ack then means the device, as with
        Kafka.
        """
        self.need_simulated_disk(node)
        log = node.open(flush_messages=3)
        outcomes: list[int] = []
        for count in (2, 2, 1):
            log.log.place(make_batch(count), 0)
            log.log.write(lambda outcome: outcomes.append(outcome.written_end_offset))
        assert outcomes == [2] or log.log.flushed_end_offset == 5, "a write's outcome came before its sync"
        node.runtime.run_turn()
        assert outcomes == [2, 4, 5]
        assert log.log.flushed_end_offset == 5

    def test_outcomes_come_in_the_order_of_the_writes(self, node: Node) -> None:
        """A write that fails while the outcome of an earlier write waits for its sync is told behind that. What was
        placed behind the failed write until then is gone with it.
        """
        self.need_simulated_disk(node)
        log = node.open(flush_messages=1)
        node.runtime.offload_delay_ms = lambda: SYNC_MS
        outcomes: list[WriteOutcome] = []

        def write(count: int) -> None:
            log.log.place(make_batch(count, value_bytes=200), 0)
            log.log.write(outcomes.append)

        write(2)
        node.runtime.disk.inject(
            Fault(operation="pwritev", path_part=log.record_files, error_number=errno.ENOSPC, times=1)
        )
        write(3)
        write(4)
        node.runtime.advance(20 * SYNC_MS)
        first, *behind = outcomes
        assert first == WriteOutcome(2), (
            "the outcome of a failed write was told before that of the write before it"
        )
        assert len(behind) == 2
        assert behind[0].error is not None, "a failed write was reported as written"
        kept = 2 if behind[1].error is not None else behind[1].written_end_offset
        assert log.log.written_end_offset == log.log.placed_end_offset == kept
        assert [end for _, end in log.spans()][-1] == kept
        log.log.place(make_batch(1), 0)
        log.log.write(outcomes.append)
        node.runtime.advance(20 * SYNC_MS)
        assert outcomes[-1] == WriteOutcome(kept + 1)

    def test_a_failing_sync_fails_the_outcomes_that_wait_for_it(self, node: Node) -> None:
        """With ``flush.messages`` a write whose sync fails is not acknowledged. Its outcome has the error, and so have
        those that wait behind it; each is told once.
        """
        self.need_simulated_disk(node)
        log = node.open(flush_messages=1)
        node.runtime.offload_delay_ms = lambda: SYNC_MS
        node.runtime.disk.inject(Fault(operation="fdatasync"))
        outcomes: list[WriteOutcome] = []
        for _ in range(3):
            log.log.place(make_batch(), 0)
            log.log.write(outcomes.append)
        node.runtime.advance(20 * SYNC_MS)
        assert len(outcomes) == 3, "a write whose sync failed was never told, or twice"
        assert all(outcome.error is not None for outcome in outcomes), (
            "a write was acknowledged, its sync had failed"
        )

    def test_flush_ms_flushes_after_that_time(self, node: Node) -> None:
        """With ``flush.ms`` a flush comes after that time at the latest."""
        log = node.open(flush_ms=500)
        log.fill(2)
        flushes_at_once = log.log.flushed_end_offset == 2
        node.runtime.advance(499)
        assert log.log.flushed_end_offset == 0 or flushes_at_once
        node.runtime.advance(2)
        assert log.log.flushed_end_offset == 2


def _write(log: Log, count: int = 1, seed: int = 0) -> None:
    """Place and write one batch. Its outcome may come later, where an ack means the device."""
    log.log.place(make_batch(count, seed=seed), 0)
    log.log.write(lambda _: None)


def _flush_three_times(log: Log) -> list[tuple[int, Completion[int]]]:
    """Write and flush three times while the first sync runs. Return each flush with the written end at its call."""
    log.node.runtime.offload_delay_ms = lambda: SYNC_MS
    flushes: list[tuple[int, Completion[int]]] = []
    for number in range(3):
        _write(log, seed=number)
        flushes.append((log.log.written_end_offset, log.log.flush()))
        log.node.runtime.run_turn()
    return flushes
