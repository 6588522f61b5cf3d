"""The contract of a tiering storage, as tests: subclass :class:`TieringContract`, and say how your storage copies.

.. code-block:: python

    class TestMyTiering(TieringContract):
        def make_storage(self, runtime):
            return MyTieringStorage(LocalStorage(runtime, ["/data"]), MyStore())

        def copy(self, log):
            ...  # every sealed segment is in the store when this returns
"""

from __future__ import annotations

from typing import cast

import pytest

from blumfeld.config.values import TopicConfig
from blumfeld.log.leader_epochs import FILE_NAME as EPOCHS
from blumfeld.log.leader_epochs import LeaderEpochCache
from blumfeld.log.segments.file_names import Suffix, segment_name
from blumfeld.spi.completion import Completion
from blumfeld.spi.storage import OffsetOutOfRangeError, PartitionLog, WriteOutcome
from blumfeld.spi.tiering import LogStartState, RemoteRead, TieredLog, TieringStorage, tiered, tiering
from blumfeld_kit.storage_contract.kit import StorageKit
from blumfeld_kit.storage_driver.node import PARTITION, TIME_MS, Log, Node, make_batch

ON = {"remote.storage.enable": "true", "index.interval.bytes": "100"}
OFF = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
EPOCH = 3


class TieringContract(StorageKit):
    """The contract of ``blumfeld.spi.tiering`` as tests. What every storage must keep is ``StorageContract``'s."""

    def copy(self, log: Log) -> None:
        """Have every sealed segment copied. The store has all of it when this returns, and ``copied_end_offset`` says
        so. The log has the small files that the broker writes: leader epochs, and a producer snapshot at each roll."""
        raise NotImplementedError("override copy")

    # The log as the broker's state keeps it

    def reconfigured(self, node: Node, log: Log, configs: dict[str, str]) -> Log:
        """Return the log that takes the place of ``log``."""
        storage = cast("TieringStorage", node.storage)
        return Log(node, storage.log_with(PARTITION, log.log, TopicConfig(configs)))

    def tiered_log(self, node: Node) -> tuple[Log, TieredLog]:
        """Return a log of four sealed segments with six records each, and an active one with two."""
        opened = node.open(index_interval_bytes=100, remote_storage_enable="true")
        log = self._tiered(opened)
        for segment in range(5):
            for batch in range(3 if segment < 4 else 1):
                time_ms = TIME_MS + segment * 100 + batch
                assert opened.append(make_batch(2, timestamp_ms=time_ms), epoch=EPOCH).error is None
            if segment < 4:
                opened.roll()
                self._small_files(log)
        return opened, log

    def _small_files(self, log: PartitionLog) -> None:
        end = log.written_end_offset
        epochs = LeaderEpochCache()
        epochs.assign(EPOCH, 0)
        log.aux.write(EPOCHS, epochs.encode())
        log.aux.write(segment_name(end, Suffix.PRODUCER_SNAPSHOT), b"producers at %d" % end)

    def copied_log(self, node: Node, local_start: int = 12) -> tuple[Log, TieredLog]:
        """Return such a log after the copy, with the local part from ``local_start`` on."""
        opened, log = self.tiered_log(node)
        self.copy(opened)
        log.drop_segments(local_start)
        return opened, log

    def _tiered(self, log: Log) -> TieredLog:
        around = tiered(log.log)
        assert around is not None, "remote.storage.enable is true, and the log is no TieredLog"
        return around

    # The exchange

    def test_only_a_topic_that_asks_for_it_is_tiered(self, node: Node) -> None:
        """``open_log`` and ``log_with`` give a ``TieredLog`` for ``remote.storage.enable`` alone."""
        assert tiering(node.storage) is not None, "a tiering storage has log_with"
        log = node.open()
        assert tiered(log.log) is None
        log = self.reconfigured(node, log, ON)
        self._tiered(log)
        assert tiered(self.reconfigured(node, log, OFF).log) is None

    @pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
    def test_an_exchange_changes_no_end_and_loses_no_outcome(self, node: Node, on: bool) -> None:
        """Batches that are placed when the log is exchanged are written, and their outcome comes once."""
        log = node.open(remote_storage_enable="false" if on else "true")
        log.fill(3, 2)
        log.log.place(make_batch(2), EPOCH)
        outcomes: list[WriteOutcome] = []
        before = (log.log.log_start_offset, log.log.written_end_offset, log.log.placed_end_offset)
        other = self.reconfigured(node, log, ON if on else OFF)
        it = other.log
        assert (it.log_start_offset, it.written_end_offset, it.placed_end_offset) == before == (0, 5, 7)
        it.place(make_batch(1), EPOCH)
        it.write(outcomes.append)
        node.runtime.run_turn()
        assert [outcome.written_end_offset for outcome in outcomes] == [8]
        assert other.spans() == [(0, 3), (3, 5), (5, 7), (7, 8)]

    def test_an_exchange_keeps_the_small_files(self, node: Node) -> None:
        """``aux`` of both logs is the same files."""
        log = node.open()
        log.log.aux.write(EPOCHS, b"before")
        other = self.reconfigured(node, log, ON)
        assert other.log.aux.read(EPOCHS) == b"before"
        other.log.aux.write(EPOCHS, b"after")
        assert self.reconfigured(node, other, OFF).log.aux.read(EPOCHS) == b"after"

    def test_a_configuration_that_changes_nothing_of_tiering_keeps_the_log(self, node: Node) -> None:
        """``log_with`` returns the same log where it stays tiered."""
        log = node.open(remote_storage_enable="true")
        assert self.reconfigured(node, log, {**ON, "retention.ms": "5"}).log is log.log

    def test_a_log_whose_tiering_ends_begins_at_its_local_start(self, node: Node) -> None:
        """Without its remote part a log has the local records alone."""
        opened, _ = self.copied_log(node)
        other = self.reconfigured(node, opened, OFF)
        assert other.log.log_start_offset == 12
        assert [span[0] for span in other.spans()] == [12, 14, 16, 18, 20, 22, 24]

    def test_a_log_that_is_tiered_again_begins_where_it_was_local(self, node: Node) -> None:
        """What the store had when tiering ended is not the log's any more."""
        opened, _ = self.copied_log(node)
        again = self._tiered(self.reconfigured(node, self.reconfigured(node, opened, OFF), ON))
        assert (again.log_start_offset, again.local_log_start_offset) == (12, 12)
        again.drop_segments(18)
        assert again.log_start_offset <= 18

    # Two starts

    def test_nothing_is_copied_before_it_is_in_the_store(self, node: Node) -> None:
        """``copied_end_offset`` is -1 or the log start at first, and then the end of the last sealed segment."""
        opened, log = self.tiered_log(node)
        assert log.copied_end_offset in (-1, 0)
        self.copy(opened)
        assert log.copied_end_offset == 24

    def test_dropped_segments_move_the_local_start_alone(self, node: Node) -> None:
        """``segments`` and ``size_bytes`` are those of the local part, ``log_start_offset`` that of the whole."""
        opened, log = self.tiered_log(node)
        self.copy(opened)
        size = log.size_bytes()
        assert (log.log_start_offset, log.local_log_start_offset) == (0, 0)
        assert log.drop_segments(12) == 2
        assert (log.log_start_offset, log.local_log_start_offset, log.written_end_offset) == (0, 12, 26)
        assert log.segments()[0].base_offset == 12
        assert log.size_bytes() < size

    def test_a_replay_begins_at_the_local_start(self, node: Node) -> None:
        """``batches`` reads nothing from the store."""
        _, log = self.copied_log(node)
        assert [batch.base_offset for batch in log.batches(0)] == [12, 14, 16, 18, 20, 22, 24]

    @pytest.mark.parametrize("bytes_max", [1, 200, 1 << 20])
    def test_a_reader_passes_the_border_and_gets_each_record_once(self, node: Node, bytes_max: int) -> None:
        """Reads from offset to offset give every batch whole, in order, wherever it lies."""
        opened, log = self.copied_log(node)
        offset, seen = 0, []
        while offset < log.written_end_offset:
            batches = opened.read(offset, bytes_max)
            assert batches, f"nothing can be read at {offset}"
            seen += [(batch.base_offset, batch.next_offset, batch.leader_epoch) for batch in batches]
            assert batches[-1].next_offset > offset, f"a read at {offset} ends before it"
            offset = batches[-1].next_offset
        assert seen == [(at, at + 2, EPOCH) for at in range(0, 26, 2)]

    def test_a_remote_read_may_begin_inside_a_batch(self, node: Node) -> None:
        """As every read it gives the batch that contains the offset."""
        opened, _ = self.copied_log(node)
        assert opened.read(5, 1)[0].base_offset == 4

    def test_a_remote_read_that_is_given_up_completes(self, node: Node) -> None:
        """Reads of the store are a ``RemoteRead``, and end soon after their reader has gone."""
        opened, log = self.copied_log(node)
        read = log.read(0, 1 << 20, 26, True)
        assert isinstance(read, RemoteRead)
        read.give_up()
        node.runtime.advance(1)
        assert read.done
        assert opened.read(0)[0].base_offset == 0, "later readers get it"

    def test_the_log_start_moves_below_and_above_the_local_one(self, node: Node) -> None:
        """``advance_log_start`` moves the whole start, and the local one once it is passed."""
        opened, log = self.copied_log(node)
        log.advance_log_start(5)
        assert (log.log_start_offset, log.local_log_start_offset) == (5, 12)
        with pytest.raises(OffsetOutOfRangeError):
            log.read(4, 1 << 20, 26, True)
        assert opened.read(5, 1)[0].base_offset == 4
        log.advance_log_start(15)
        assert (log.log_start_offset, log.local_log_start_offset) == (15, 15)
        with pytest.raises(OffsetOutOfRangeError):
            log.read(14, 1 << 20, 26, True)
        log.advance_log_start(3)
        assert log.log_start_offset == 15

    def test_times_are_found_in_both_parts(self, node: Node) -> None:
        """``offset_for_time`` and ``max_timestamp`` look at the whole log."""
        opened, log = self.copied_log(node)
        for time_ms, offset in ((TIME_MS, 0), (TIME_MS + 50, 6), (TIME_MS + 150, 12), (TIME_MS + 350, 24)):
            found = opened.time(time_ms)
            assert found is not None
            assert (found.offset, found.leader_epoch) == (offset, EPOCH)
        highest = opened.highest()
        assert highest is not None
        assert highest.offset >= 24
        log.advance_log_start(8)
        found = opened.time(TIME_MS)
        assert found is not None
        assert found.offset == 8

    # Replicas

    def test_a_truncation_of_the_local_end_leaves_the_remote_part(self, node: Node) -> None:
        """``truncate_to`` above the local start changes nothing below."""
        opened, log = self.copied_log(node)
        log.truncate_to(24)
        assert (log.log_start_offset, log.local_log_start_offset, log.written_end_offset) == (0, 12, 24)
        assert opened.spans()[-1] == (22, 24)

    def test_a_replica_begins_behind_what_the_store_has(self, node: Node) -> None:
        """``truncate_fully`` with a log start leaves an empty local part, and the store's records below it."""
        opened, log = self.copied_log(node)
        log.truncate_fully(18, 2)
        assert (log.log_start_offset, log.local_log_start_offset, log.written_end_offset) == (2, 18, 18)
        assert list(log.batches(0)) == []
        assert opened.read(2, 1)[0].base_offset == 2
        opened.fill(2)
        assert opened.read(18)[0].base_offset == 18

    def test_a_log_that_begins_anew_has_one_start(self, node: Node) -> None:
        """``truncate_fully`` alone begins both parts at the offset."""
        opened, log = self.copied_log(node)
        log.truncate_fully(100)
        assert (log.log_start_offset, log.local_log_start_offset, log.written_end_offset) == (100, 100, 100)
        with pytest.raises(OffsetOutOfRangeError):
            log.read(99, 1 << 20, 100, True)
        opened.fill(1)
        assert opened.spans() == [(100, 101)]

    @pytest.mark.parametrize(("asked", "found"), [(12, 12), (9, 12), (24, 24)])
    def test_the_state_at_the_end_of_a_copied_segment_is_found(
        self, node: Node, asked: int, found: int
    ) -> None:
        """``state_at`` gives epochs and producers as the log had them at the end of the segment that has the record
        before.
        """
        opened, log = self.copied_log(node)
        answer: LogStartState | Completion[LogStartState] = log.state_at(asked, EPOCH)
        state = opened.finish(answer)
        assert state.offset == found
        assert [tuple(entry) for entry in state.epochs] == [(EPOCH, 0)]
        assert state.producers == b"producers at %d" % found

    def test_a_log_that_is_opened_again_has_both_starts(self, node: Node) -> None:
        """The whole start is there after a close, as the local one is."""
        opened, log = self.copied_log(node)
        log.advance_log_start(5)
        opened.flush()
        log.close()
        again = cast("TieredLog", node.open(remote_storage_enable="true").log)
        assert (again.log_start_offset, again.local_log_start_offset) == (5, 12)
        assert again.written_end_offset == 26
