"""The part of the storage contract about restarts, crashes and disk faults."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from blumfeld.spi.completion import Completion
from blumfeld.spi.storage import TopicPartition, lasting
from blumfeld_kit.fakes.files import Adversary, Fault
from blumfeld_kit.storage_contract.kit import ANY, StorageKit
from blumfeld_kit.storage_driver.node import (
    PARTITION,
    SMALL_FILES,
    TIME_MS,
    TOPIC_ID,
    Log,
    Node,
    make_batch,
)

CRASH_SEEDS = range(60)


class StorageDurability(StorageKit):
    """The durability part of ``StorageContract``."""

    # Restart

    def test_everything_is_there_after_a_clean_stop(self, node: Node) -> None:
        """After a clean stop everything is there, and the next start recovers nothing."""
        self.need_restart()
        log = node.open(segment_bytes=2000, index_interval_bytes=200)
        log.fill(*[3] * 50)
        for name, data in SMALL_FILES.items():
            log.log.aux.write(name, data)
        log.log.advance_log_start(4)
        before, newest = log.read_all(), log.highest()
        node.stop(broker_epoch=11)
        node.restart()
        assert node.storage.previous_broker_epoch() == 11
        assert list(node.storage.partitions()) == [(PARTITION, TOPIC_ID)]
        log = node.open(segment_bytes=2000, index_interval_bytes=200)
        assert node.listener.recoveries == []
        assert (log.log.log_start_offset, log.log.written_end_offset) == (4, 150)
        assert log.log.flushed_end_offset == 150
        assert log.read_all() == before
        assert log.highest() == newest
        assert {name: log.log.aux.read(name) for name in SMALL_FILES} == SMALL_FILES
        log.fill(1)
        assert log.spans(150) == [(150, 151)]

    def test_everything_written_survives_the_process(self, node: Node) -> None:
        """After ``kill -9`` every written batch is there. A batch that was only placed is not."""
        self.need_restart()
        self.need_simulated_disk(node)
        log = node.open(segment_bytes=2000)
        log.fill(*[3] * 50)
        before = log.read_all()
        log.log.place(make_batch(3), 0)
        node.crash(power_cut=False)
        assert node.storage.previous_broker_epoch() == -1
        log = node.open(segment_bytes=2000)
        assert log.read_all() == before
        assert all(next_offset <= 150 for _, next_offset in node.listener.recoveries)

    def test_another_cluster_or_node_is_refused(self, node: Node) -> None:
        """A directory belongs to one node of one cluster: a start with another cluster id or node id raises
        ``ValueError``.
        """
        self.need_restart()
        node.stop()
        for cluster_id, node_id in (("other-cluster", 7), ("kit-cluster", 8)):
            other = Node(lambda _: self.make_runtime(node.runtime), self.make_storage)
            with pytest.raises(ValueError, match=ANY):
                other.start(cluster_id, node_id)
        node.restart()

    def test_two_storages_on_one_directory_are_refused(self, node: Node) -> None:
        """A second storage on the same directory can't start (``OSError``). The first one serves on."""
        self.need_restart()
        second = self.make_storage(node.runtime)
        with pytest.raises(OSError, match=ANY):
            node.runtime.run(second.start("kit-cluster", 7))
        node.open().fill(1)

    def test_a_power_cut_leaves_a_prefix_with_all_that_was_flushed(self, node: Node) -> None:
        """After a power cut the log ends at the edge of a batch, at or behind the flushed end, and goes on from
        there.
        """
        self.need_crash(node)
        for seed in CRASH_SEEDS:
            crashing = Node(self.make_runtime, self.make_storage).start()
            flushed, written = _live(crashing.open(segment_bytes=900, index_interval_bytes=100), seed)
            for generation in range(3):
                for _ in range(seed * 3 + generation):
                    crashing.runtime.random.random()
                log = crashing.crash().open(segment_bytes=900, index_interval_bytes=100)
                left = log.read_all()
                where = f"seed {seed}, crash {generation}"
                assert [batch.data for batch in left] == written[: len(left)], where
                assert log.log.written_end_offset >= flushed, where
                if left:
                    assert left[-1].next_offset == log.log.written_end_offset, where
                assert [b.base_offset for b in log.log.batches(0)] == [b.base_offset for b in left], where
                flushed, written = _live(log, seed + generation)
            crashing.end()

    @pytest.mark.parametrize("cut", list(Adversary), ids=lambda cut: cut.name.lower())
    def test_what_was_emptied_does_not_come_back_in_front_of_what_is_new(
        self, node: Node, cut: Adversary
    ) -> None:
        """After ``truncate_fully`` and a power cut the log has the old batches or the new ones, never both."""
        self.need_crash(node)
        log = node.open()
        log.fill(3, 3)
        log.flush()
        log.log.truncate_fully(6)
        log.fill(2)
        log = node.crash(luck=cut).open()
        assert log.spans() in ([], [(0, 3), (3, 6)], [(6, 8)])

    @pytest.mark.parametrize("cut", list(Adversary), ids=lambda cut: cut.name.lower())
    def test_a_log_that_is_made_anew_has_nothing_of_its_namesake(self, node: Node, cut: Adversary) -> None:
        """A log that is deleted and made anew has nothing of the old one: an old log start would hide new records."""
        self.need_crash(node)
        log = node.open()
        log.fill(3, 3)
        log.flush()
        log.log.advance_log_start(3)
        node.storage.checkpoint([])
        node.runtime.advance(1_000)
        log.log.close()
        node.storage.delete_log(PARTITION)
        log = node.open()
        log.fill(2)
        log.flush()
        log = node.crash(luck=cut).open()
        assert log.log.log_start_offset == 0
        assert log.spans() == [(0, 2)]

    # Faults

    @pytest.mark.parametrize("short_bytes", [None, 0, 1, 70, 150])
    def test_a_failed_or_short_write_is_undone(self, node: Node, log: Log, short_bytes: int | None) -> None:
        """After a failed or short write all placed batches are gone, and the next write takes the same offsets."""
        self.need_simulated_disk(node)
        log.fill(2)
        size = log.log.size_bytes()
        node.runtime.disk.inject(
            Fault(
                operation="pwritev",
                path_part=log.record_files,
                short_bytes=short_bytes,
                error_number=errno.ENOSPC,
            )
        )
        outcome = log.append(make_batch(3), make_batch(1))
        assert outcome.written_end_offset == 2
        assert isinstance(outcome.error, OSError)
        assert (log.log.placed_end_offset, log.log.written_end_offset) == (2, 2)
        assert log.log.size_bytes() == size
        assert log.spans() == [(0, 2)]
        log.fill(4)
        assert log.spans() == [(0, 2), (2, 6)]
        node.crash(power_cut=False)
        assert node.open().spans() == [(0, 2), (2, 6)]

    def test_what_a_failed_write_left_is_found_by_no_recovery(self, node: Node, log: Log) -> None:
        """A recovery doesn't bring back a batch of a failed write, though it is whole in the file: its producer got an
        error.
        """
        self.need_simulated_disk(node)
        log.fill(2)
        whole = make_batch(3)
        fault = Fault(operation="pwritev", path_part=log.record_files, short_bytes=whole.size_bytes)
        node.runtime.disk.inject(fault)
        assert log.append(whole, make_batch(1)).error is not None
        node.crash(power_cut=False)
        assert node.open().spans() == [(0, 2)]

    def test_what_was_written_before_a_roll_in_the_same_turn_stays(self, node: Node) -> None:
        """When a write fails behind a roll, the batches before the roll stay. The outcome has the offset up to which it
        wrote.
        """
        self.need_segments(node)
        self.need_simulated_disk(node)
        log = node.open(segment_bytes=400)
        node.runtime.disk.inject(
            Fault(operation="pwritev", path_part=log.record_files, nth=2, error_number=errno.ENOSPC)
        )
        outcome = log.append(*[make_batch(2, value_bytes=100) for _ in range(4)])
        assert outcome.error is not None
        assert 0 < outcome.written_end_offset < 8
        assert log.spans()[-1][1] == outcome.written_end_offset == log.log.placed_end_offset
        log.fill(1)

    def test_a_sync_that_fails_takes_the_directory_offline(self, node: Node, log: Log) -> None:
        """A failed sync takes the directory offline: a second sync may report success though the pages were lost."""
        self.need_simulated_disk(node)
        log.fill(2)
        node.runtime.disk.inject(Fault(operation="fdatasync"))
        with pytest.raises(OSError, match=ANY):
            log.flush()
        assert log.log.flushed_end_offset == 0
        offline = [d.directory_id for d in node.storage.log_dirs() if not d.online]
        assert offline == [log.log.directory_id]
        _all_raise(log)
        with pytest.raises(OSError, match=ANY):
            log.flush()
        with pytest.raises(OSError, match=ANY):
            node.open(TopicPartition("another", 0), directory_id=offline[0])

    def test_a_write_in_an_offline_directory_tells_it_in_the_outcome(self, node: Node, log: Log) -> None:
        """``write`` raises nothing when the directory goes offline behind ``place``: the outcome has the error, and
        what was placed is gone.
        """
        self.need_simulated_disk(node)
        log.fill(2)
        log.log.place(make_batch(3), 0)
        node.runtime.disk.inject(Fault(operation="fdatasync"))
        with pytest.raises(OSError, match=ANY):
            log.flush()
        try:
            outcome = log.write()
        except OSError as error:
            pytest.fail(f"write raised {error!r} in an offline directory; report it in the outcome")
        assert isinstance(outcome.error, OSError)
        assert outcome.written_end_offset == 2
        assert (log.log.placed_end_offset, log.log.written_end_offset) == (2, 2)

    def test_a_cut_back_that_fails_takes_the_directory_offline(self, node: Node, log: Log) -> None:
        """When cutting back a failed write fails too, the directory goes offline: the file's contents are unknown."""
        self.need_simulated_disk(node)
        log.fill(2)
        node.runtime.disk.inject(Fault(operation="pwritev", path_part=log.record_files, short_bytes=70))
        node.runtime.disk.inject(Fault(operation="truncate", path_part=log.record_files))
        assert log.append(make_batch()).error is not None
        _all_raise(log)
        node.runtime.crash(power_cut=False)
        node.runtime.disk.heal()
        assert node.restart().open().spans() == [(0, 2)]

    def test_a_full_disk_costs_what_does_not_fit(self, node: Node, log: Log) -> None:
        """A full disk costs no acknowledged batch, and no checkpoint that fails takes the directory offline. With room
        again the log goes on, also after a crash.
        """
        self.need_simulated_disk(node)
        log.fill(2, 3)
        for room in (0, 1, 40, 200):
            before = log.spans()
            node.runtime.disk.room = room
            outcome = log.append(make_batch(2, value_bytes=300), make_batch(1))
            assert isinstance(outcome.error, OSError)
            assert outcome.error.errno == errno.ENOSPC
            assert outcome.written_end_offset == before[-1][1]
            assert log.spans() == before
            self._checkpoint(node, before[-1][1])
            offline = [d.path for d in node.storage.log_dirs() if not d.online]
            assert offline == [], "a write or a checkpoint that found no room took the directory offline"
            node.runtime.disk.heal()
            log.fill(1)
        spans = log.spans()
        self._checkpoint(node, spans[-1][1])
        node.crash(power_cut=False)
        assert node.open().spans() == spans
        if self.survives_restart:
            assert node.storage.high_watermarks() == {PARTITION: spans[-1][1]}

    def _checkpoint(self, node: Node, high_watermark: int) -> None:
        if lasting(node.storage) is not None:
            node.storage.checkpoint([(PARTITION, high_watermark)])
            node.runtime.run_turn()

    def test_cold_bytes_are_not_waited_for_on_the_loop(self, node: Node) -> None:
        """A read or a look-up by time never waits on the loop for bytes that aren't in memory: it completes later."""
        self.need_simulated_disk(node)
        log = node.open(segment_bytes=4000, index_interval_bytes=500)
        for n in range(100):
            log.append(make_batch(3, timestamp_ms=TIME_MS + n, seed=n))
        disk = node.runtime.disk
        active = log.log.segments()[-1].base_offset if node.has_segments else log.log.written_end_offset
        batches = [batch for batch in log.read_all() if batch.next_offset <= active]
        waited = 0

        def chill() -> None:
            node.runtime.advance(60_000)  # a storage may assume that recently read bytes are in memory
            disk.chill(log.record_files)
            disk.cold_reads = 0

        for number, batch in enumerate(batches[::7]):
            chill()
            answer = log.log.read(batch.base_offset, 1, log.log.written_end_offset, True)
            assert disk.cold_reads == 0, "a read of cold bytes made the loop wait for the device; offload it"
            waited += isinstance(answer, Completion)
            read_batches = log.finish_read(answer)
            assert read_batches[0] == batch
            chill()
            looked_up = log.log.offset_for_time(TIME_MS + number * 7)
            assert disk.cold_reads == 0, "a read of cold bytes made the loop wait for the device; offload it"
            at = log.finish(looked_up)
            assert at is not None
            assert at.offset == batch.base_offset
        disk.chill()
        assert waited or not self.segment_files, "no read of cold bytes in files waited for the disk"
        if not waited:
            self.not_tried("no read waited for the disk, so all that was read lies in memory")


def _live(log: Log, seed: int) -> tuple[int, list[bytes]]:
    """Append, and flush now and then. Return the flushed end offset and the data of every batch in the log."""
    flushed = log.log.flushed_end_offset
    for step in range(seed % 7 + 12):
        log.append(
            *[make_batch(1 + (seed + step) % 3, seed=step, value_bytes=40) for _ in range(step % 3 + 1)]
        )
        if (seed * 7 + step) % 9 == 0:
            flushed = log.flush()
    return flushed, [batch.data for batch in log.read_all()]


def _all_raise(log: Log) -> None:
    it = log.log

    def write() -> None:
        outcome = log.append(make_batch())
        if outcome.error is not None:
            raise outcome.error

    uses: list[Callable[[], object]] = [write, it.flush]
    uses += [it.roll, it.segments] if log.node.has_segments else []
    uses += [lambda: it.read(0, 1, 1, True), lambda: it.truncate_to(0)]
    for use in uses:
        with pytest.raises(OSError, match=ANY) as raised:
            use()
        assert raised.value.strerror, "the OSError has no strerror: it must say what is wrong"
