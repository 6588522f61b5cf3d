"""The contract of a storage, as tests: subclass :class:`StorageContract` and give it your storage.

.. code-block:: python

    class TestMyStorage(StorageContract):
        survives_restart = segment_files = simulated_disk = survives_crash = True

        def make_storage(self, runtime):
            return MyStorage(runtime, "/data")

        def make_storage_in(self, runtime, directory):  # to be killed on a real disk
            return MyStorage(runtime, directory)
"""

from __future__ import annotations

import pytest

from blumfeld.spi.parts import join, release
from blumfeld.spi.storage import (
    InconsistentTopicIdError,
    OffsetOutOfRangeError,
    TopicPartition,
    WriteOutcome,
    lasting,
)
from blumfeld.wire.compression.codec import Codec
from blumfeld_kit.storage_contract.compaction import StorageCompaction
from blumfeld_kit.storage_contract.crashes import StorageCrashes
from blumfeld_kit.storage_contract.directories import StorageDirectories
from blumfeld_kit.storage_contract.durability import StorageDurability
from blumfeld_kit.storage_contract.flushes import StorageFlushes
from blumfeld_kit.storage_contract.kit import ANY
from blumfeld_kit.storage_contract.random_operations import run_machine
from blumfeld_kit.storage_contract.real_disk import StorageRealDisk
from blumfeld_kit.storage_contract.restarts import StorageRestarts
from blumfeld_kit.storage_contract.small_files import StorageSmallFiles
from blumfeld_kit.storage_driver.node import PARTITION, TIME_MS, Log, Node, make_batch

OTHER_TOPIC_ID = bytes(range(32, 48))


class StorageContract(
    StorageDurability,
    StorageFlushes,
    StorageRestarts,
    StorageCompaction,
    StorageDirectories,
    StorageSmallFiles,
    StorageCrashes,
    StorageRealDisk,
):
    """The contract of ``blumfeld.spi.storage`` as tests. ``kit.StorageKit`` has the flags and the methods to
    override.
    """

    # Append

    def test_a_new_log_is_empty_and_starts_at_zero(self, log: Log) -> None:
        """A new log has nothing placed, written or flushed, and its offsets begin at 0."""
        it = log.log
        assert (it.log_start_offset, it.placed_end_offset, it.written_end_offset) == (0, 0, 0)
        assert log.read(0) == []
        assert log.highest() is None
        assert it.size_bytes() == 0
        if log.node.has_segments:
            segments = [(s.base_offset, s.next_offset, s.size_bytes, s.sealed) for s in it.segments()]
            assert segments == [(0, 0, 0, False)]

    def test_offsets_are_contiguous_from_zero(self, log: Log) -> None:
        """Each batch gets the next offsets, within one turn and over several."""
        assert [log.log.place(make_batch(n), 0) for n in (2, 1, 3)] == [0, 2, 3]
        assert log.write() == WriteOutcome(6)
        assert log.log.place(make_batch(), 0) == 6
        assert log.write() == WriteOutcome(7)
        assert log.spans() == [(0, 2), (2, 3), (3, 6), (6, 7)]

    def test_what_is_placed_is_not_seen_until_it_is_written(self, log: Log) -> None:
        """A placed batch is invisible to readers, and ``written_end_offset`` doesn't count it, until it is written."""
        log.fill(2)
        log.log.place(make_batch(3), 0)
        assert (log.log.placed_end_offset, log.log.written_end_offset) == (5, 2)
        assert log.spans() == [(0, 2)]
        assert [batch.base_offset for batch in log.log.batches(0)] == [0]
        log.write()
        assert log.spans() == [(0, 2), (2, 5)]

    @pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
    def test_bytes_stay_as_they_came_but_for_offset_and_epoch(self, log: Log, codec: Codec) -> None:
        """The batch is opaque (docs/design.md, rule 4): only the base offset and the leader epoch may change."""
        log.fill(4)
        batch = make_batch(3, codec=codec, value_bytes=300)
        before = bytes(batch.data)
        log.append(batch, epoch=5)
        (stored,) = log.read(4)
        assert (stored.base_offset, stored.next_offset, stored.leader_epoch) == (4, 7, 5)
        assert stored.data[8:12] == before[8:12]
        assert stored.data[16:] == before[16:]

    def test_a_write_of_nothing_succeeds(self, log: Log) -> None:
        """A write without placed batches succeeds. Its outcome has the written end offset."""
        log.fill(2)
        assert log.write() == WriteOutcome(2)

    def test_more_batches_in_a_turn_than_a_gather_write_takes(self, log: Log) -> None:
        """More batches than one gather write takes are split over several system calls, and all are written."""
        log.append(*[make_batch(1, seed=n) for n in range(2500)])
        assert log.log.written_end_offset == 2500
        assert len(log.read(0)) == 2500
        assert log.read(2499)[0].next_offset == 2500

    def test_a_batch_with_offsets_keeps_them_and_must_not_go_back(self, log: Log) -> None:
        """``place_as_is`` keeps the offsets of a batch, holes included, as a follower needs it. An offset below the end
        is refused with ``ValueError``.
        """
        log.log.place_as_is(make_batch(3, base_offset=0))
        log.log.place_as_is(make_batch(2, base_offset=10))
        with pytest.raises(ValueError, match=ANY):
            log.log.place_as_is(make_batch(2, base_offset=11))
        log.write()
        assert log.spans() == [(0, 3), (10, 12)]
        assert log.read(5)[0].base_offset == 10
        assert log.read(0, end_offset=7)[-1].next_offset == 3

    # Read

    def test_a_read_begins_with_the_batch_that_contains_the_offset(self, log: Log) -> None:
        """A read begins with the batch that contains the offset. Clients skip the records that they didn't ask for."""
        log.fill(5, 5)
        assert [(b.base_offset, b.next_offset) for b in log.read(7, 1)] == [(5, 10)]
        assert log.read_raw_end(7) == 10

    def test_every_offset_of_a_long_log_is_found(self, node: Node) -> None:
        """A read finds every offset of a log with many segments, whether an index entry is near or not."""
        log = node.open(index_interval_bytes=300, segment_bytes=4000)
        log.fill(*[1 + n % 4 for n in range(150)])
        if node.has_segments:
            assert len(log.log.segments()) > 3
        spans = log.spans()
        for base_offset, next_offset in spans:
            for offset in range(base_offset, next_offset):
                assert log.read(offset, 1)[0].base_offset == base_offset

    def test_an_end_inside_a_batch_excludes_that_batch(self, log: Log) -> None:
        """A read returns no batch that reaches beyond ``end_offset``, which may be the high watermark."""
        log.fill(5, 5, 5)
        assert [b.base_offset for b in log.read(0, end_offset=12)] == [0, 5]
        assert [b.base_offset for b in log.read(0, end_offset=10)] == [0, 5]
        assert log.read(7, end_offset=9) == []
        assert log.read(3, end_offset=3) == []

    def test_the_first_batch_is_whole_if_that_was_asked_for(self, log: Log) -> None:
        """With ``minimum`` the first batch comes whole even when it is larger than the limit (KIP-74)."""
        log.fill(5, 5)
        size = len(log.read(0, 1)[0].data)
        assert log.read_raw_size(0, 1) == size
        assert log.read_raw_size(0, size + 10) in (size, size + 10)

    @pytest.mark.parametrize("value_bytes", [10, 20_000, 1_500_000])
    def test_a_first_batch_that_does_not_fit_is_left_out(self, node: Node, value_bytes: int) -> None:
        """Without ``minimum_one_batch`` a read gives no piece of its first batch: the batch is whole, or the read is
        empty. So it is for a batch in the active segment, in a sealed one, and after a start.

        Clients take a piece for a batch that will never fit, and end (KIP-74).
        """
        log = node.open()
        for _ in range(2):
            log.fill(2, 2, value_bytes=value_bytes)
            log.roll()
        log.fill(2, 2, value_bytes=value_bytes)
        self._first_batches_are_whole_or_absent(log)
        log.log.close()
        self._first_batches_are_whole_or_absent(node.open())
        if self.survives_restart:
            node.stop()
            self._first_batches_are_whole_or_absent(node.restart().open())

    def _first_batches_are_whole_or_absent(self, log: Log) -> None:
        for offset in range(0, log.log.written_end_offset, 2):
            size = log.read_raw_size(offset, 1)
            for bytes_max in (0, 1, 12, 16, 17, 61, size - 1):
                given = log.read_raw_size(offset, bytes_max, minimum=False)
                assert given == 0, (
                    f"the batch at {offset} has {size} bytes, and a read of {bytes_max} gave {given}"
                )
            assert [batch.base_offset for batch in log.read(offset, size, minimum=False)] == [offset]

    def test_offsets_outside_the_log_are_refused(self, log: Log) -> None:
        """An offset outside the log raises ``OffsetOutOfRangeError``. A read at the end itself is empty."""
        log.fill(5)
        assert log.read(5) == []
        for offset in (6, -1):
            with pytest.raises(OffsetOutOfRangeError):
                log.read_raw(offset)
        log.log.advance_log_start(3)
        with pytest.raises(OffsetOutOfRangeError):
            log.read_raw(2)
        assert log.read(3)[0].base_offset == 0

    def test_replay_gives_written_batches_from_the_one_with_the_offset(self, node: Node) -> None:
        """``batches(offset)`` gives the written batches from the one that contains the offset on, over all segments,
        also large ones.
        """
        log = node.open(segment_bytes=3000)
        log.fill(*[3] * 60)
        log.append(make_batch(2, value_bytes=1_500_000))
        log.fill(2)
        spans = [(batch.base_offset, batch.next_offset) for batch in log.log.batches(100)]
        assert spans == [s for s in log.spans() if s[1] > 100]
        assert spans[-1][1] == log.log.written_end_offset

    # Segments

    def test_a_roll_seals_the_active_segment(self, node: Node, log: Log) -> None:
        """A roll seals the active segment and tells the listener. An empty active segment is not rolled."""
        self.need_segments(node)
        log.log.roll()
        assert node.listener.rolls == []
        log.fill(3, timestamp_ms=TIME_MS + 5)
        log.log.roll()
        log.log.roll()
        log.fill(2)
        assert node.listener.rolls == [3]
        infos = log.log.segments()
        assert [(s.base_offset, s.next_offset, s.sealed) for s in infos] == [(0, 3, True), (3, 5, False)]
        assert [s.max_timestamp_ms for s in infos] == [TIME_MS + 5, TIME_MS]
        assert sum(s.size_bytes for s in infos) == log.log.size_bytes() == sum(map(_size, log.read_all()))
        if self.segment_files:
            assert all(node.runtime.files.exists(s.files[0]) for s in infos)

    def test_it_rolls_by_size_between_batches_of_one_write(self, node: Node) -> None:
        """No segment is larger than ``segment.bytes``. The listener is told of a roll before the batches behind it are
        written.
        """
        self.need_segments(node)
        log = node.open(segment_bytes=1000)
        log.append(*[make_batch(1, value_bytes=200) for _ in range(20)])
        infos = log.log.segments()
        assert len(infos) >= 5
        assert all(s.size_bytes <= 1000 for s in infos)
        assert node.listener.rolls == [s.base_offset for s in infos[1:]]
        assert len(log.spans()) == 20

    def test_it_rolls_by_the_time_of_records(self, node: Node) -> None:
        """``segment.ms`` counts from the timestamp of the segment's first batch."""
        self.need_segments(node)
        log = node.open(segment_ms=1000)
        for delta in (0, 999, 1000, 1001, 1500, 2002):
            log.fill(1, timestamp_ms=TIME_MS + delta)
        assert node.listener.rolls == [3, 5]

    def test_old_segments_are_dropped_and_regions_in_flight_live_on(self, node: Node) -> None:
        """Files of a dropped segment are removed after ``file.delete.delay.ms``. A region that was read before keeps
        its bytes.
        """
        self.need_segments(node)
        log = node.open(file_delete_delay_ms=1000)
        for _ in range(3):
            log.fill(2, 2)
            log.log.roll()
        held = log.read_raw(0)
        before = join(held.parts)
        paths = log.log.segments()[0].files
        assert log.log.drop_segments(7) == 1
        assert log.log.log_start_offset == 4
        assert log.log.drop_segments(12) == 2
        assert log.log.log_start_offset == 12
        assert log.read(12) == []
        assert join(held.parts) == before
        release(held.parts)
        if self.segment_files:
            gone = f"{paths[0]}.deleted"
            assert node.runtime.files.exists(gone)
            node.runtime.advance(1500)
            assert not node.runtime.files.exists(gone)
        with pytest.raises(OffsetOutOfRangeError):
            log.read_raw(4)
        log.fill(1)
        assert log.spans() == [(12, 13)]

    def test_the_log_start_moves_up_only_within_the_log(self, log: Log) -> None:
        """The log start never goes back (DeleteRecords). An offset behind the log end is refused with
        ``ValueError``.
        """
        log.fill(5, 5)
        log.log.advance_log_start(7)
        log.log.advance_log_start(3)
        assert log.log.log_start_offset == 7
        with pytest.raises(ValueError, match=ANY):
            log.log.advance_log_start(11)
        assert log.spans() == [(5, 10)]

    # Truncation

    @pytest.mark.parametrize(
        ("offset", "end"),
        [(0, 0), (1, 0), (3, 3), (4, 3), (8, 6), (9, 9), (12, 12), (17, 15), (18, 18), (30, 18)],
    )
    def test_truncation_drops_whole_batches_from_the_offset_on(
        self, node: Node, offset: int, end: int
    ) -> None:
        """A truncation drops every batch that reaches beyond the offset, wherever the offset lies. Appends go on from
        the new end.
        """
        log = node.open(index_interval_bytes=0)
        for segment in range(3):
            log.fill(3, 3, timestamp_ms=TIME_MS + segment)
            if segment < 2:
                log.roll()
        log.log.place(make_batch(2), 0)
        log.log.truncate_to(offset)
        it = log.log
        assert (it.placed_end_offset, it.written_end_offset) == (end, end)
        assert it.flushed_end_offset <= end
        whole = [(base, base + 3) for base in range(0, end, 3)]
        assert log.spans() == whole
        newest = log.highest()
        assert (newest.offset if newest else None) == (min((end - 1) // 6 * 6, 12) if end else None)
        log.fill(2, 2)
        assert log.spans() == [*whole, (end, end + 2), (end + 2, end + 4)]
        assert it.size_bytes() == sum(map(_size, log.read_all()))

    def test_a_log_that_is_truncated_fully_starts_where_it_is_told(self, log: Log) -> None:
        """``truncate_fully`` empties the log and starts it at the offset, as for a follower that fell behind the
        leader's log start.
        """
        log.fill(5)
        log.log.truncate_fully(100)
        it = log.log
        assert (it.log_start_offset, it.written_end_offset, it.size_bytes()) == (100, 100, 0)
        log.fill(2)
        assert log.spans() == [(100, 102)]

    # Time

    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD], ids=["none", "zstd"])
    def test_look_up_by_time_finds_the_record_inside_its_batch(self, node: Node, codec: Codec) -> None:
        """A look-up by time returns the first record at or after the time, from the log start on, also when timestamps
        are out of order.
        """
        log = node.open(segment_bytes=600, index_interval_bytes=50)
        times = [10, 20, 15, 40, 40, 30, 60, 5, 70, 70, 65, 90, 80, 85]
        for at in range(0, len(times), 2):
            log.append(make_batch(timestamps=[TIME_MS + t for t in times[at : at + 2]], codec=codec))
        if node.has_segments:
            assert len(log.log.segments()) > 1 or codec is Codec.ZSTD
        for wanted in range(95):
            expected = next((n for n, t in enumerate(times) if t >= wanted), None)
            place = log.time(TIME_MS + wanted)
            assert place is None if expected is None else (place is not None and place.offset == expected)
        newest = log.highest()
        assert newest is not None
        assert (newest.offset, newest.timestamp_ms, newest.leader_epoch) == (11, TIME_MS + 90, 0)
        log.log.advance_log_start(4)
        place = log.time(TIME_MS)
        assert place is not None
        assert (place.offset, place.timestamp_ms) == (4, TIME_MS + 40)
        log.log.advance_log_start(12)
        newest = log.highest()
        assert newest is not None
        assert newest.offset == 13

    # Life

    def test_a_log_that_is_closed_can_be_opened_again(self, node: Node, log: Log) -> None:
        """A closed log can be opened again in the same process. A second close does nothing."""
        log.fill(3, 3)
        before = log.read_all()
        log.log.close()
        log.log.close()
        again = node.open()
        assert again.read_all() == before
        assert node.listener.recoveries == []
        again.fill(1)
        assert again.spans() == [(0, 3), (3, 6), (6, 7)]

    @pytest.mark.parametrize("closed", [True, False], ids=["closed", "open"])
    def test_a_deleted_log_is_gone_and_its_name_is_free(self, node: Node, log: Log, closed: bool) -> None:
        """After ``delete_log`` the name is free at once for another topic, whether the log was closed or not. A region
        of the old log keeps its bytes."""
        log.fill(3)
        held = log.read_raw(0)
        if closed:
            log.log.close()
        node.storage.delete_log(PARTITION)
        again = node.open(topic_id=OTHER_TOPIC_ID)
        assert again.log.written_end_offset == 0
        again.fill(1)
        node.runtime.advance(120_000)
        assert again.spans() == [(0, 1)]
        assert len(join(held.parts)) == held.size_bytes
        release(held.parts)

    def test_a_log_of_another_topic_is_refused(self, node: Node, log: Log) -> None:
        """Opening a log with another topic id raises ``InconsistentTopicIdError``."""
        log.log.close()
        with pytest.raises(InconsistentTopicIdError, match=ANY):
            node.open(topic_id=OTHER_TOPIC_ID)
        assert node.open().log.written_end_offset == 0

    def test_stop_is_legal_without_start(self) -> None:
        """``stop`` before ``start`` does nothing, and the storage can start afterwards."""
        node = Node(self.make_runtime, self.make_storage)
        node.stop()
        node.start()
        node.stop()

    def test_what_it_says_of_itself(self, node: Node) -> None:
        """``promise()`` is a text for people. Each directory of ``log_dirs()`` is online and has an id of 16 bytes."""
        assert node.storage.promise()
        assert all(d.online and len(d.directory_id) == 16 for d in node.storage.log_dirs())

    def test_high_watermarks_are_remembered(self, node: Node, log: Log) -> None:
        """``high_watermarks()`` returns the marks of the last checkpoint, after a restart too where that is claimed."""
        if lasting(node.storage) is None:
            self.not_tried("it is no LastingStorage: high watermarks")
        marks = [(PARTITION, 4), (TopicPartition("other", 3), 9)]
        node.storage.checkpoint(marks)
        node.runtime.run_turn()
        assert node.storage.high_watermarks() == dict(marks)
        if self.survives_restart:
            node.stop()
            assert node.restart().storage.high_watermarks() == dict(marks)

    def test_against_a_list(self) -> None:
        """After any sequence of operations the log equals a model, a list of batches (hypothesis chooses the
        operations).
        """
        simulated = Node(self.make_runtime, self.make_storage).is_simulated
        run_machine(
            lambda: Node(self.make_runtime, self.make_storage).start(),
            restarts=self.survives_restart,
            faults=self.simulated_disk and simulated,
            power_cuts=self.survives_crash and self.simulated_disk and simulated,
        )


def _size(batch: object) -> int:
    return len(batch.data)  # type: ignore[attr-defined]
