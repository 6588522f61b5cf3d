"""The part of the storage contract about restarts: what the next process finds after a stop, a kill or a power cut."""

from __future__ import annotations

import pytest

from blumfeld.spi.internal_topics import OFFSETS_TOPIC
from blumfeld.spi.storage import TopicPartition, segmented
from blumfeld_kit.fakes.files import Adversary
from blumfeld_kit.storage_contract.kit import StorageKit
from blumfeld_kit.storage_driver.node import (
    PARTITION,
    SMALL_FILES,
    TIME_MS,
    TOPIC_ID,
    Log,
    Node,
    StoredBatch,
    make_batch,
)

THIRD_TOPIC_ID, OTHER_TOPIC_ID = bytes(range(64, 80)), bytes(range(32, 48))
NEIGHBOURS = [
    *[TopicPartition("topic", number) for number in (0, 1, 2, 10, 11)],
    *[TopicPartition("topic-1", number) for number in (0, 1)],
    TopicPartition("topic.1", 1),
    TopicPartition("Topic_1", 1),
    TopicPartition(OFFSETS_TOPIC, 1),
]
"""Partitions whose names are easily taken for each other's."""
ENDS = ["stop", "kill", "power cut"]
AFTER_ANY_END = pytest.mark.parametrize("end", ENDS)


class StorageRestarts(StorageKit):
    """The restart part of ``StorageContract``."""

    @AFTER_ANY_END
    def test_each_partition_has_its_own_again(self, node: Node, end: str) -> None:
        """After a restart each partition has its own topic id, batches, small files, log start and high watermark,
        whatever its neighbours are called.
        """
        self.need_restart()
        before: dict[str, tuple[list[StoredBatch], dict[str, bytes], int]] = {}
        topics = sorted({at.topic for at in NEIGHBOURS})
        ids = {at: bytes([1 + topics.index(at.topic)]) * 16 for at in NEIGHBOURS}
        for number, at in enumerate(NEIGHBOURS):
            log = node.open(at, ids[at])
            log.fill(2, *[1 + number % 3] * number, seed=number)
            log.flush()
            log.log.aux.write("leader-epoch-checkpoint", f"of {at}".encode())
            log.log.advance_log_start(number % 3)
            before[str(at)] = (log.read_all(), _small_files(log), log.log.log_start_offset)
        marks = {at: 100 + number for number, at in enumerate(NEIGHBOURS)}
        node.storage.checkpoint(marks.items())
        self.end(node, end)
        assert dict(node.storage.partitions()) == ids
        assert node.storage.high_watermarks() == marks
        after = {}
        for at in reversed(NEIGHBOURS):
            log = node.open(at, ids[at])
            after[str(at)] = (log.read_all(), _small_files(log), log.log.log_start_offset)
        for name, (batches, files, start) in before.items():
            reopened = after[name]
            assert _in_words(reopened[0]) == _in_words(batches), (
                f"{name} has other batches than before the {end}"
            )
            assert reopened == (batches, files, start), f"{name} has something of another partition"

    @AFTER_ANY_END
    def test_small_files_are_as_they_were_written(self, node: Node, end: str) -> None:
        """After a restart each small file has the bytes that it was written with last, and a deleted one is gone. The
        broker rebuilds leader epochs and producers from these files, and reads the log only behind them.
        """
        self.need_restart()
        log = node.open()
        log.fill(3, 3)
        log.flush()
        for name, data in SMALL_FILES.items():
            log.log.aux.write(name, b"an older one, which is longer than the last one: " + data)
            log.log.aux.write(name, data)
        if end != "power cut":  # it may bring back what was deleted, which is one snapshot too many
            log.log.aux.write("00000000000000000001.snapshot", b"deleted at once")
            log.log.aux.delete("00000000000000000001.snapshot")
        self.end(node, end)
        assert _small_files(node.open()) == SMALL_FILES, f"small files differ after the {end}"

    def test_only_the_broker_changes_small_files(self, node: Node) -> None:
        """A roll, a truncation, a new log start, a dropped segment, a close: none of them changes a small file. (A
        segment that is dropped takes its transaction index along.)
        """
        log = node.open(file_delete_delay_ms=100)
        for epoch in range(4):
            log.append(make_batch(3), make_batch(2), epoch=epoch)
            log.roll()
        files = dict(SMALL_FILES)
        for name, data in files.items():
            log.log.aux.write(name, data)
        log.append(make_batch(3), epoch=4)
        log.roll()
        assert _small_files(log) == files, "a roll changed small files"
        log.log.truncate_to(18)
        assert _small_files(log) == files, "truncate_to changed small files"
        log.log.advance_log_start(7)
        kept = segmented(log.log)
        if kept is not None and kept.drop_segments(7):
            files.pop("00000000000000000000.txnindex")
            log.log.aux.delete("00000000000000000000.txnindex")
            node.runtime.advance(200)
        assert _small_files(log) == files, "a new log start changed small files"
        log.log.close()
        log = node.open()
        assert _small_files(log) == files, "a close changed small files"
        log.log.truncate_fully(40)
        assert _small_files(log) == files, "truncate_fully changed small files"

    @AFTER_ANY_END
    def test_leader_epochs_stay_with_their_batches(self, node: Node, end: str) -> None:
        """A batch keeps its leader epoch: behind a truncation, for a look-up by time, and after a restart."""
        self.need_restart()
        log = node.open()
        for epoch in range(6):
            log.append(make_batch(2, timestamp_ms=TIME_MS + epoch), epoch=epoch)
            log.roll()
        log.log.truncate_to(8)
        log.append(make_batch(2, timestamp_ms=TIME_MS + 9), epoch=9)
        log.flush()
        self._check_epochs(log)
        self.end(node, end)
        self._check_epochs(node.open())

    def _check_epochs(self, log: Log) -> None:
        expected = [(0, 0), (2, 1), (4, 2), (6, 3), (8, 9)]
        assert [(b.base_offset, b.leader_epoch) for b in log.read_all()] == expected
        assert [(b.base_offset, b.partition_leader_epoch) for b in log.log.batches(0)] == expected
        places = [log.time(TIME_MS + time) for time in (0, 3, 4, 9)]
        assert [at and (at.offset, at.leader_epoch) for at in places] == [(0, 0), (6, 3), (8, 9), (8, 9)]
        highest = log.highest()
        assert highest is not None
        assert (highest.offset, highest.leader_epoch) == (8, 9)

    @pytest.mark.parametrize("end", ["stop", "kill"])
    def test_a_deleted_log_stays_deleted(self, node: Node, end: str) -> None:
        """A log that was deleted isn't back after a stop or a kill, not under its name and not under that of its
        successor. (A power cut may bring it back: the broker then finds a stray.)
        """
        self.need_restart()
        other = TopicPartition("other", 0)
        for at, topic_id in ((PARTITION, TOPIC_ID), (other, THIRD_TOPIC_ID)):
            log = node.open(at, topic_id)
            log.fill(3, 3)
            log.flush()
            log.log.aux.write("leader-epoch-checkpoint", b"of the deleted log")
            log.log.close()
            node.storage.delete_log(at)
        node.open(other, OTHER_TOPIC_ID).fill(1)
        self.end(node, end)
        assert dict(node.storage.partitions()) == {other: OTHER_TOPIC_ID}, (
            f"a deleted log is back after the {end}"
        )
        log = node.open(PARTITION)
        assert (log.log.written_end_offset, log.log.aux.read("leader-epoch-checkpoint")) == (0, None)
        log = node.open(other, OTHER_TOPIC_ID)
        assert (log.spans(), log.log.aux.read("leader-epoch-checkpoint")) == ([(0, 1)], None)

    @AFTER_ANY_END
    def test_high_watermarks_are_those_of_the_last_checkpoint(self, node: Node, end: str) -> None:
        """``high_watermarks()`` after a restart are those of the last checkpoint, not of an earlier one."""
        self.need_restart()
        log = node.open()
        for mark in (2, 4, 6):
            log.fill(2)
            node.storage.checkpoint([(PARTITION, mark)])
            node.runtime.advance(1_000)
        self.end(node, end)
        assert node.storage.high_watermarks() == {PARTITION: 6}
        node.storage.checkpoint([(PARTITION, 5)])  # a truncation may have lowered it
        self.end(node, end)
        assert node.storage.high_watermarks() == {PARTITION: 5}

    @pytest.mark.parametrize("end", [None, *ENDS[:2]])
    def test_every_record_is_found_by_its_time(self, node: Node, end: str | None) -> None:
        """A look-up by time finds each record of a long log: in every segment, at every place in a batch, behind a
        truncation, and after a restart, which may have rebuilt the index.
        """
        if end is not None:
            self.need_restart()
        log = node.open(segment_bytes=4000, index_interval_bytes=300)
        offset = 0
        for number in range(160):
            count = 1 + number % 3
            times = [TIME_MS + 10 * (offset + n) for n in range(count)]
            log.append(make_batch(timestamps=times))
            offset += count
        log.log.truncate_to(offset - 40)
        if end is not None:
            self.end(node, end)
            log = node.open(segment_bytes=4000, index_interval_bytes=300)
        last = log.log.written_end_offset
        for wanted in range(last):
            for time_ms in (TIME_MS + 10 * wanted, TIME_MS + 10 * wanted - 3):
                place = log.time(time_ms)
                assert place is not None, f"no record at {time_ms}, but offset {wanted} has a later time"
                assert (place.offset, place.timestamp_ms) == (wanted, TIME_MS + 10 * wanted)
        assert log.time(TIME_MS + 10 * last) is None

    def end(self, node: Node, how: str) -> None:
        """End the process in one of the ways of :data:`ENDS`, once its checkpoints are written, and start again."""
        if how == "power cut":
            self.need_crash(node)
        if how != "stop":
            self.need_simulated_disk(node)
        node.runtime.advance(1_000)
        if how == "stop":
            node.stop()
            node.restart()
        else:
            node.crash(power_cut=how == "power cut", luck=Adversary.LOSE)


def _small_files(log: Log) -> dict[str, bytes]:
    """Return the small files that the broker wrote. A storage may keep more, of its own."""
    aux = log.log.aux
    names = [name for name in aux.names() if name in SMALL_FILES or name.endswith(".snapshot")]
    return {name: aux.read(name) or b"" for name in names}


def _in_words(batches: list[StoredBatch]) -> list[tuple[int, int]]:
    return [(batch.base_offset, batch.next_offset) for batch in batches]
