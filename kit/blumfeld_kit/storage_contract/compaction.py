"""The part of the storage contract about compaction: which records stay, what readers see meanwhile, how a pass
ends.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from blumfeld.spi.compaction import AbortedTransaction, CompactionAbandonedError, CompactionResult
from blumfeld.spi.parts import join, release
from blumfeld.spi.storage import WriteOutcome
from blumfeld.wire.compression.codec import Codec
from blumfeld_kit.storage_contract.cleaner_passes import (
    check_same,
    contents,
    keys,
    marker,
    meanwhile,
    transactional,
)
from blumfeld_kit.storage_contract.kit import StorageKit
from blumfeld_kit.storage_driver.compaction_model import compact, content, difference
from blumfeld_kit.storage_driver.node import PARTITION, TIME_MS, Log, Node, keyed_batch, make_batch

RETENTION_MS = 1000


class StorageCompaction(StorageKit):
    """The compaction part of ``StorageContract``."""

    def compacted_log(self, node: Node) -> Log:
        """Return a log with three sealed segments and an active one. For all keys but one a newer record follows."""
        self.need_compaction(node)
        log = node.open(index_interval_bytes=100, cleanup_policy="compact")
        for segment in range(3):
            for n in range(6):
                pairs = [
                    (b"k%d" % ((segment * 5 + n + m) % 9), b"%d-%d" % (segment, n) * 9) for m in range(3)
                ]
                log.append(keyed_batch(*pairs, timestamp_ms=TIME_MS + segment * 100 + n))
            log.append(keyed_batch((b"only-%d" % segment, b"x")))
            log.log.roll()
        log.append(keyed_batch((b"k1", b"active")))
        return log

    def test_a_storage_that_does_not_compact_says_so(self, node: Node, log: Log) -> None:
        """A storage whose ``compacts`` is false refuses ``compact`` with ``NotImplementedError`` and keeps every
        record.
        """
        if node.storage.compacts:
            pytest.skip("compacts")
        self.need_segments(node)
        log.fill(1)
        with pytest.raises(NotImplementedError):
            log.log.compact(log.compaction())

    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD], ids=["none", "zstd"])
    def test_the_newest_record_of_each_key_stays_where_it_was(self, node: Node, codec: Codec) -> None:
        """The newest record of each key keeps its offset, timestamp and batch bounds. The result counts what the pass
        did.
        """
        self.need_compaction(node)
        log = node.open(index_interval_bytes=100, cleanup_policy="compact")
        for n in range(12):
            pairs = [(b"k%d" % ((n + m) % 5), b"%d" % n * 50) for m in range(3)]
            log.append(keyed_batch(*pairs, timestamp_ms=TIME_MS + n, codec=codec), epoch=n // 4)
            if n % 4 == 3:
                log.log.roll()
        log.append(keyed_batch((b"k0", b"active")))
        before, infos = contents(log), log.log.segments()
        compaction = log.compaction()
        expected = compact(before, compaction)
        result = log.compact()
        check_same(log, [*expected.batches, *before[12:]])
        assert (log.log.cleaned_end_offset, result.cleaned_end_offset) == (36, 36)
        assert (result.records_kept, result.keys) == (36 - len(expected.removed), 5)
        assert result.records_read >= 36
        assert (result.segments_before, result.invalid_records) == (3, 0)
        assert result.bytes_before == sum(info.size_bytes for info in infos[:-1])
        after = log.log.segments()
        assert result.bytes_after == sum(info.size_bytes for info in after[:-1])
        assert result.segments_after == len(after) - 1
        assert all(a.next_offset == b.base_offset for a, b in pairwise(after))
        assert after[-1] == infos[-1]

    def test_reads_and_look_ups_step_over_what_fell_out(self, node: Node) -> None:
        """A read at an offset that compaction removed begins with the next batch. A look-up by time finds a record that
        is there.
        """
        log = self.compacted_log(node)
        log.compact()
        left = {offset: batch for batch in contents(log) for offset, *_ in batch.records}
        for offset in range(log.log.written_end_offset):
            first_batch = log.read(offset, 1)[0]
            assert first_batch.next_offset > offset
            newer = min((at for at in left if at >= offset), default=None)
            assert newer is None or first_batch.base_offset <= newer
        for batch in left.values():
            for offset, _, _, timestamp, _ in batch.records:
                at = log.time(timestamp)
                assert at is not None
                assert at.offset in left
                assert at.timestamp_ms >= timestamp
                assert at.offset <= offset

    def test_who_reads_meanwhile_sees_the_old_or_the_new(self, node: Node) -> None:
        """During a cleaner pass a reader sees the old batches or the new ones, never both and never none. Regions that
        a reader holds keep their bytes, and batches that are appended meanwhile stay.
        """
        log = self.compacted_log(node)
        before = contents(log)
        held = log.read_raw(0)
        held_bytes = join(held.parts)
        expected = [*compact(before, log.compaction()).batches, before[-1]]
        appended: list[int] = []

        async def look() -> None:
            read_batches = [content(batch.data) for batch in await log.read_on()]
            read_batches = read_batches[: len(read_batches) - len(appended)]
            assert read_batches == before or difference(read_batches, expected) is None
            if len(appended) < 5:
                appended.append(log.log.place(make_batch(1), 0))
                log.log.write(lambda outcome: None)

        result = meanwhile(log, look)
        assert isinstance(result, CompactionResult)
        assert join(held.parts) == held_bytes
        release(held.parts)
        batches = contents(log)
        at = len(batches) - len(appended)
        assert [batch.base_offset for batch in batches[at:]] == appended
        assert difference(batches[:at], expected) is None

    def test_a_pass_over_a_clean_log_changes_nothing(self, node: Node) -> None:
        """A second cleaner pass begins where the first ended, and leaves the same records."""
        log = self.compacted_log(node)
        log.compact()
        before = contents(log)
        result = log.compact()
        assert result.cleaned_end_offset == log.log.cleaned_end_offset
        assert difference(contents(log), before) is None

    def test_the_head_loses_what_the_tail_has_newer(self, node: Node) -> None:
        """Keys are mapped from the first dirty offset on. Older records of those keys leave the clean head too."""
        log = self.compacted_log(node)
        log.compact()
        log.append(keyed_batch((b"only-0", b"newer"), (b"k3", b"newer")))
        log.log.roll()
        log.append(keyed_batch((b"only-1", b"not sealed")))
        before, compaction = contents(log), log.compaction()
        assert compaction.first_dirty_offset > 0
        log.compact()
        assert difference(contents(log)[:-1], compact(before, compaction).batches) is None

    def test_tombstones_stay_until_their_horizon(self, node: Node) -> None:
        """The first pass that sees a tombstone sets its delete horizon (KIP-534). Until then a reader still learns of
        the deletion.
        """
        self.need_compaction(node)
        log = node.open(cleanup_policy="compact")
        log.append(keyed_batch((b"gone", b"value"), (b"kept", b"value")))
        log.append(keyed_batch((b"gone", None)))
        log.log.roll()
        log.append(keyed_batch((b"other", b"active")))
        log.compact(delete_retention_ms=RETENTION_MS)
        horizon = {batch.base_offset: batch.delete_horizon_ms for batch in contents(log)}[2]
        assert horizon == node.runtime.now_ms() + RETENTION_MS or not node.is_simulated
        assert keys(log) == {b"kept": 1, b"gone": 2, b"other": 3}
        node.runtime.advance(RETENTION_MS - 10)
        log.compact(delete_retention_ms=RETENTION_MS)
        assert keys(log) == {b"kept": 1, b"gone": 2, b"other": 3}
        node.runtime.advance(20)
        log.compact(delete_retention_ms=RETENTION_MS)
        assert keys(log) == {b"kept": 1, b"other": 3}
        assert log.log.written_end_offset == 4

    def test_records_without_a_key_fall_out_and_are_counted(self, node: Node) -> None:
        """A record without a key is removed and counted in ``invalid_records``: a compacted topic can't hold it."""
        self.need_compaction(node)
        log = node.open(cleanup_policy="compact")
        log.append(keyed_batch((b"a", b"1"), (None, b"2"), (b"b", b"3")))
        log.append(keyed_batch((None, b"4")))
        log.log.roll()
        log.append(keyed_batch((b"c", b"5")))
        assert log.compact().invalid_records == 2
        assert keys(log) == {b"a": 0, b"b": 2, b"c": 4}

    def test_records_of_aborted_transactions_fall_out(self, node: Node) -> None:
        """Records of an aborted transaction are removed and never replace an older record of their key. The log end
        stays.
        """
        self.need_compaction(node)
        log = node.open(cleanup_policy="compact")
        log.append(keyed_batch((b"a", b"committed")))
        log.append(transactional((b"a", b"aborted"), (b"b", b"aborted"), sequence=0))
        log.append(marker(commit=False))
        log.append(transactional((b"c", b"committed"), sequence=2))
        log.append(marker(commit=True))
        log.log.roll()
        log.append(keyed_batch((b"d", b"active")))
        aborted = AbortedTransaction(producer_id=5, first_offset=1, last_offset=3, last_stable_offset=3)
        log.compact(aborted=(aborted,))
        assert keys(log) == {b"a": 0, b"c": 4, b"d": 6}
        assert log.log.written_end_offset == 7

    def test_a_map_that_is_full_ends_the_round_early(self, node: Node) -> None:
        """When the offset map is full, the pass ends early. The next passes go on from there until the log is clean."""
        log = self.compacted_log(node)
        before, compaction = contents(log), log.compaction()
        small = 24 * 8
        passes = [log.compact(map_bytes=small, map_load_factor=0.9)]
        assert 0 < passes[0].cleaned_end_offset < compaction.end_offset
        while log.log.cleaned_end_offset < compaction.end_offset and len(passes) < 30:
            passes.append(log.compact(map_bytes=small, map_load_factor=0.9))
            assert passes[-1].cleaned_end_offset > passes[-2].cleaned_end_offset
        expected = compact(before, compaction)
        assert difference(contents(log)[:-1], [b for b in expected.batches if b.records]) is None

    def test_no_segment_is_larger_than_was_asked_for(self, node: Node) -> None:
        """A pass merges segments that shrank. No merged segment is larger than ``segment_bytes`` of the request."""
        self.need_compaction(node)
        log = node.open(cleanup_policy="compact")
        for segment in range(3):
            log.append(*[keyed_batch((b"%d-%d" % (segment, n), b"once")) for n in range(4)])
            log.log.roll()
        log.append(keyed_batch((b"0-0", b"not sealed")))
        size = max(info.size_bytes for info in log.log.segments())
        result = log.compact(segment_bytes=size)
        assert all(info.size_bytes <= size for info in log.log.segments())
        assert result.segments_after == result.segments_before == 3
        log.log.roll()
        log.append(keyed_batch((b"1-1", b"not sealed")))
        result = log.compact(segment_bytes=10 * size)
        assert (result.segments_after, len(log.log.segments())) == (1, 2)
        assert len(keys(log, active=True)) == 12

    @pytest.mark.parametrize("how", ["cut", "cut fully", "close", "delete"])
    def test_a_round_is_abandoned_when_the_log_is_cut_or_closed_meanwhile(self, node: Node, how: str) -> None:
        """A truncation or a close during a pass ends it with ``CompactionAbandonedError`` and an unchanged log, or the
        pass was complete before.
        """
        self.need_compaction(node)
        at_once = self.compacted_log(node)
        takes_time = not at_once.log.compact(at_once.compaction()).done
        at_once.log.close()
        node.storage.delete_log(PARTITION)
        ends = [self._interrupt(node, how, turns) for turns in (0, 1, 3, 6, 12, 25, 50)]
        assert any(ends) or not takes_time

    def _interrupt(self, node: Node, how: str, turns: int) -> bool:
        log = self.compacted_log(node)
        before, compaction = contents(log), log.compaction()
        expected = compact(before, compaction).batches
        left = turns

        async def interrupt() -> None:
            nonlocal left
            left -= 1
            if left == -1:
                if how == "cut":
                    log.log.truncate_to(10)
                elif how == "cut fully":
                    log.log.truncate_fully(100)
                else:
                    log.log.close()
                if how == "delete":
                    node.storage.delete_log(PARTITION)

        ended = meanwhile(log, interrupt, at_least=turns + 1)
        assert isinstance(ended, CompactionResult | CompactionAbandonedError), ended
        again = node.open(index_interval_bytes=100) if how in ("close", "delete") else log
        if how == "cut":
            cut = [batch for batch in before if batch.next_offset <= 10]
            batches = contents(again)
            assert batches == cut or difference(batches, [b for b in expected if b.next_offset <= 10]) is None
            assert again.log.cleaned_end_offset <= again.log.written_end_offset
        elif how == "close":
            assert contents(again) == before or difference(contents(again), [*expected, before[-1]]) is None
        else:
            assert contents(again) == []
        again.fill(1)
        assert again.spans()[-1][1] == again.log.written_end_offset
        again.log.close()
        node.storage.delete_log(PARTITION)
        return isinstance(ended, CompactionAbandonedError)

    def test_a_bad_batch_leaves_the_log_as_it_was(self, node: Node) -> None:
        """A damaged batch ends the pass with ``OSError``. The log is unchanged and stays usable."""
        log = self.compacted_log(node)
        self.need_simulated_disk(node)
        self.need_segment_files()
        spans, files = log.spans(), [info.files for info in log.log.segments()]
        path = files[1][0]
        node.runtime.disk.flip_bit(path, node.runtime.files.open(path, write=False).size() // 2)
        ended = meanwhile(log)
        assert isinstance(ended, OSError)
        assert log.spans() == spans
        assert [info.files for info in log.log.segments()] == files
        assert log.log.cleaned_end_offset == 0
        assert all(info.online for info in node.storage.log_dirs())
        log.fill(1)

    def test_a_full_disk_leaves_the_log_as_it_was(self, node: Node) -> None:
        """A full disk ends the pass with ``OSError`` and leaves the log unchanged. With room again, a pass succeeds."""
        log = self.compacted_log(node)
        self.need_simulated_disk(node)
        before, compaction = contents(log), log.compaction()
        node.runtime.disk.room = 500
        ended = meanwhile(log)
        assert isinstance(ended, OSError)
        assert contents(log) == before
        node.runtime.disk.heal()
        log.compact()
        check_same(log, [*compact(before, compaction).batches, before[-1]])

    def test_what_was_cleaned_is_known_after_a_restart(self, node: Node) -> None:
        """After a restart the log has the same records and the same cleaned end offset."""
        log = self.compacted_log(node)
        self.need_restart()
        log.compact()
        before, cleaned = contents(log), log.log.cleaned_end_offset
        assert cleaned > 0
        node.stop()
        log = node.restart().open(index_interval_bytes=100, cleanup_policy="compact")
        assert contents(log) == before
        assert log.log.cleaned_end_offset == cleaned
        log.fill(1)

    def test_a_cut_lowers_the_end_of_what_was_cleaned(self, node: Node) -> None:
        """After a truncation the cleaned end offset is not above the cut, also after a restart: what follows it is
        dirty.
        """
        log = self.compacted_log(node)
        log.compact()
        log.log.truncate_to(20)
        assert log.log.cleaned_end_offset <= log.log.written_end_offset <= 20
        log.append(keyed_batch((b"k1", b"behind the cut")))
        if self.survives_restart:
            node.stop()
            log = node.restart().open(index_interval_bytes=100, cleanup_policy="compact")
            assert log.log.cleaned_end_offset <= 20
        log.log.truncate_fully(1000)
        log.append(keyed_batch((b"k1", b"anew"), (b"k1", b"newer")))
        log.log.roll()
        log.append(keyed_batch((b"k2", b"active")))
        log.compact(first_dirty_offset=max(log.log.cleaned_end_offset, 1000))
        assert keys(log) == {b"k1": 1001, b"k2": 1002}

    def test_a_cut_lowers_it_before_anything_is_written_behind(self, node: Node) -> None:
        """The cleaned end offset is lowered before anything is written behind the cut. Otherwise a crash would leave
        new records that count as clean, and tombstones among them would go too early.
        """
        log = self.compacted_log(node)
        self.need_restart()
        self.need_simulated_disk(node)
        log.compact()
        node.runtime.run_turn()
        log.log.truncate_to(20)
        appended: list[WriteOutcome] = []
        for n in range(40):  # all in one turn, so that nothing delayed is done in between
            log.log.place(keyed_batch((b"k%d" % n, b"behind the cut")), 0)
        log.log.write(appended.append)
        node.crash(power_cut=False)
        log = node.open(index_interval_bytes=100, cleanup_policy="compact")
        assert log.log.written_end_offset > 40
        assert log.log.cleaned_end_offset <= 20
