"""The part of the storage contract about several log directories: placement, failure of one of them, moves."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from blumfeld.spi.parts import join, release
from blumfeld.spi.storage import LogDirNotFoundError, LogNotOpenError, TopicPartition
from blumfeld_kit.fakes.files import Fault
from blumfeld_kit.fakes.power import Adversary
from blumfeld_kit.storage_contract.kit import ANY, StorageKit
from blumfeld_kit.storage_driver.node import PARTITION, SMALL_FILES, Log, Node, make_batch

OTHER = TopicPartition("other", 0)
UNKNOWN_ID = bytes(range(100, 116))
STEPS_MAX = 400


class StorageDirectories(StorageKit):
    """The directory part of ``StorageContract``."""

    # Placement

    def test_a_new_log_is_made_where_the_fewest_are(self, node: Node) -> None:
        """A new log goes into the online directory with the fewest logs."""
        self.need_directories(node)
        logs = [node.open(TopicPartition("many", n)) for n in range(2 * len(node.directories))]
        places = [log.log.directory_id for log in logs]
        assert all(places.count(directory) == 2 for directory in node.directories)

    def test_a_new_log_is_made_where_it_was_asked_for(self, node: Node) -> None:
        """A new log goes into the directory that the caller names. After a restart it is found there, whichever is
        named then.
        """
        self.need_directories(node)
        first, second, *_ = node.directories
        for n in range(3):
            log = node.open(TopicPartition("many", n), directory_id=second)
            assert log.log.directory_id == second
            log.fill(1)
            if self.segment_files:
                paths = {info.directory_id: info.path for info in node.storage.log_dirs()}
                assert log.log.segments()[0].files[0].startswith(paths[second])
        node.stop()
        node.restart()
        assert node.directories[:2] == [first, second]
        log = node.open(TopicPartition("many", 0), directory_id=first)
        assert log.log.directory_id == second
        assert log.spans() == [(0, 1)]

    def test_each_directory_has_a_lock_of_its_own(self, node: Node) -> None:
        """Each directory has a lock. A second storage on the same directories can't start."""
        self.need_directories(node)
        second = self.make_storage(node.runtime)
        with pytest.raises(OSError, match=ANY):
            node.runtime.run(second.start("kit-cluster", 7))
        node.open().fill(1)

    def test_a_log_made_anew_elsewhere_is_the_only_one(self, node: Node) -> None:
        """A log that is deleted in one directory and made anew in another is the only one of its name after any power
        cut.
        """
        self.need_directories(node)
        self.need_crash(node)
        first, second, *_ = node.directories
        for cut in Adversary:
            log = node.open(PARTITION, directory_id=first)
            log.fill(3)
            log.flush()
            log.log.close()
            node.storage.delete_log(PARTITION)
            log = node.open(PARTITION, directory_id=second)
            log.fill(1)
            log.flush()
            node.crash(luck=cut)
            log = node.open()
            assert (log.log.directory_id, log.spans()) == (second, [(0, 1)])
            log.log.close()
            node.storage.delete_log(PARTITION)
            node.stop()
            node.restart()

    def test_a_log_that_is_set_aside_frees_its_name(self, node: Node) -> None:
        """After ``set_aside_log`` another topic may use the name. The old log start and high watermark don't apply to
        it.
        """
        self.need_crash(node)
        log = node.open()
        log.fill(3, 3)
        log.log.advance_log_start(3)
        node.storage.checkpoint([(PARTITION, 6)])
        with pytest.raises(ValueError, match=ANY):
            node.storage.set_aside_log(PARTITION)
        node.stop()
        node.restart()
        node.storage.set_aside_log(PARTITION)
        node.storage.set_aside_log(OTHER)  # without such a log it does nothing
        assert PARTITION not in dict(node.storage.partitions())
        log = node.open(topic_id=UNKNOWN_ID)
        assert (log.log.log_start_offset, log.log.written_end_offset) == (0, 0)
        log.fill(1)
        log.flush()
        node.crash()
        assert dict(node.storage.partitions()) == {PARTITION: UNKNOWN_ID}
        assert node.open(topic_id=UNKNOWN_ID).spans() == [(0, 1)]

    # Failure

    @pytest.mark.parametrize("how", ["sync", "write", "read-only"])
    def test_a_failed_directory_takes_only_its_own_logs(self, node: Node, how: str) -> None:
        """Logs in a failed directory raise ``OSError`` from then on. The others serve, and the watcher is told once
        (KIP-112).
        """
        self.need_directories(node)
        first, second, *_ = node.directories
        good, bad = self._two(node, first, second)
        self._fail(node, second, how)
        with pytest.raises(OSError, match=ANY):
            use_device(bad)
        node.runtime.run_turn()
        assert [(info.directory_id, info.online) for info, _ in node.watcher.failures] == [(second, False)]
        assert isinstance(node.watcher.failures[0][1], OSError)
        online = {info.directory_id: info.online for info in node.storage.log_dirs()}
        assert not online.pop(second)
        assert all(online.values())
        uses: list[Callable[[], object]] = [bad.log.segments, lambda: bad.read_raw(0), bad.log.roll]
        for use in uses:
            with pytest.raises(OSError, match=ANY):
                use()
        good.fill(2)
        assert good.flush() == 4
        assert node.open(TopicPartition("new", 0)).log.directory_id != second
        with pytest.raises(OSError, match=ANY):
            node.open(TopicPartition("new", 1), directory_id=second)
        node.runtime.advance(1000)
        assert len(node.watcher.failures) == 1

    def test_a_failed_directory_stays_offline_until_the_next_start(self, node: Node) -> None:
        """A failed directory stays offline until the next start, even if the device works again. Then what was flushed
        is there.
        """
        self.need_directories(node)
        first, second, *_ = node.directories
        good, bad = self._two(node, first, second)
        bad.flush()
        self._fail(node, second, "sync")
        with pytest.raises(OSError, match=ANY):
            use_device(bad)
        node.runtime.disk.heal()
        with pytest.raises(OSError, match=ANY):
            bad.flush()
        with pytest.raises(OSError, match=ANY):
            node.open(OTHER)
        good.fill(1)
        node.stop()
        node.restart()
        assert all(info.online for info in node.storage.log_dirs())
        assert node.open(OTHER).spans()[0] == (0, 2)
        assert node.open().spans() == [(0, 2), (2, 3)]

    def test_a_stop_with_a_failed_directory_is_clean_for_the_others(self, node: Node) -> None:
        """After a stop with a failed directory, only the logs in that directory are recovered at the next start."""
        self.need_directories(node)
        first, second, *_ = node.directories
        _, bad = self._two(node, first, second)
        self._fail(node, second, "sync")
        with pytest.raises(OSError, match=ANY):
            use_device(bad)
        node.stop()
        node.runtime.disk.heal()
        node.restart()
        node.open()
        assert node.listener.recoveries == []
        if self.segment_files:
            node.open(OTHER)
            assert node.listener.recoveries != []

    def _two(self, node: Node, first: bytes, second: bytes) -> tuple[Log, Log]:
        good = node.open(PARTITION, directory_id=first)
        bad = node.open(OTHER, directory_id=second)
        good.fill(2)
        bad.fill(2)
        return good, bad

    def _fail(self, node: Node, directory: bytes, how: str) -> None:
        (path,) = [info.path for info in node.storage.log_dirs() if info.directory_id == directory]
        disk = node.runtime.disk
        if how == "read-only":
            disk.read_only.add(path)
        else:
            operation = "fdatasync" if how == "sync" else "pwritev"
            disk.inject(Fault(operation=operation, path_part=path, error_number=errno.EIO, times=-1))

    # Moves

    def test_a_log_moves_while_it_serves(self, node: Node) -> None:
        """A log that moves to another directory keeps its batches, and reads and appends go on meanwhile (KIP-113)."""
        self.need_directories(node)
        target, log = self._to_move(node)
        held = log.read_raw(0)
        held_bytes = join(held.parts)
        before = log.read_all()
        node.storage.move_log(PARTITION, target)
        for _ in range(STEPS_MAX):
            log.fill(1)
            assert log.read_all()[: len(before)] == before
            if log.log.directory_id == target:
                break
            node.runtime.advance(5)
        node.runtime.run_turn()
        assert (log.log.directory_id, node.storage.moves()) == (target, ())
        assert node.watcher.moves == [(PARTITION, target)]
        assert join(held.parts) == held_bytes
        release(held.parts)
        log.fill(2)
        log.flush()
        spans = log.spans()
        assert all(self._lies(node, target, path) for info in log.log.segments() for path in info.files)
        node.runtime.advance(120_000)
        assert log.spans() == spans
        node.stop()
        log = node.restart().open(segment_bytes=1500)
        assert (log.log.directory_id, log.spans()) == (target, spans)
        assert {name: log.log.aux.read(name) for name in SMALL_FILES} == SMALL_FILES
        assert node.listener.recoveries == []

    def test_what_is_told_of_a_move_that_runs(self, node: Node) -> None:
        """``moves()`` reports a running move: its directories, how far the copy is, and its size (for
        DescribeLogDirs).
        """
        self.need_directories(node)
        target, log = self._to_move(node)
        source = log.log.directory_id
        node.storage.move_log(PARTITION, target)
        (move,) = node.storage.moves()
        assert (move.partition, move.from_directory_id, move.to_directory_id) == (PARTITION, source, target)
        assert 0 <= move.copied_end_offset <= log.log.written_end_offset
        assert move.size_bytes >= 0

    def test_a_move_to_where_the_log_lies_gives_up_one_that_runs(self, node: Node) -> None:
        """A move to the directory that already holds the log cancels a running move, and nothing of the copy is
        left.
        """
        self.need_directories(node)
        target, log = self._to_move(node)
        source, spans = log.log.directory_id, log.spans()
        node.storage.move_log(PARTITION, target)
        node.storage.move_log(PARTITION, source)
        node.runtime.advance(120_000)
        assert node.storage.moves() == ()
        assert (log.log.directory_id, log.spans()) == (source, spans)
        assert node.watcher.moves == []
        assert self._names(node, target) == []

    def test_what_can_not_be_moved(self, node: Node) -> None:
        """A move to an unknown or offline directory raises ``LogDirNotFoundError``. A move of a log that isn't
        open raises ``LogNotOpenError``.
        """
        self.need_directories(node)
        target, log = self._to_move(node)
        with pytest.raises(LogDirNotFoundError):
            node.storage.move_log(PARTITION, UNKNOWN_ID)
        with pytest.raises(LogNotOpenError):
            node.storage.move_log(OTHER, target)
        self._fail(node, target, "sync")
        bad = node.open(OTHER, directory_id=target)
        with pytest.raises(OSError, match=ANY):
            use_device(bad)
        with pytest.raises(LogDirNotFoundError):
            node.storage.move_log(PARTITION, target)
        log.fill(1)

    def test_a_move_whose_target_fails_leaves_the_log_where_it_is(self, node: Node) -> None:
        """When the target directory fails, the move is given up and the target goes offline. The log serves where it
        was.
        """
        self.need_directories(node)
        target, log = self._to_move(node)
        source, spans = log.log.directory_id, log.spans()
        self._fail(node, target, "write")
        node.storage.move_log(PARTITION, target)
        node.runtime.advance(1000)
        assert (log.log.directory_id, log.spans()) == (source, spans)
        log.fill(1)
        assert log.flush() == log.log.written_end_offset
        assert [info.directory_id for info in node.storage.log_dirs() if info.online] == [
            directory for directory in node.directories if directory != target
        ]

    @pytest.mark.parametrize("power_cut", [False, True], ids=["kill", "power cut"])
    def test_a_move_outlives_a_crash_at_any_time(self, node: Node, power_cut: bool) -> None:
        """After a crash at any file operation of a move, every batch is there once, and the log ends up in one
        directory only.
        """
        self.need_directories(node)
        if power_cut:
            self.need_crash(node)
        count = self._operations_of_a_move()
        for at in range(1, count + 1, max(1, count // 40)):
            crashing = Node(self.make_runtime, self.make_storage).start()
            target, log = self._to_move(crashing)
            log.flush()
            source, spans = log.log.directory_id, log.spans()
            crashing.runtime.disk.watch = crash_at(crashing, at, power_cut)
            crashing.storage.move_log(PARTITION, target)
            for _ in range(STEPS_MAX):
                if crashing.runtime.dead:
                    break
                crashing.runtime.loop.advance(5)
            crashing.runtime.disk.watch = None
            log = crashing.restart().open(segment_bytes=1500)
            assert log.spans() == spans, f"after a crash before file operation {at} of the move"
            assert log.log.directory_id in (source, target)
            crashing.runtime.advance(120_000)
            assert crashing.storage.moves() == ()
            assert log.spans() == spans
            log.fill(1)
            there = [d for d in (source, target) if self._names(crashing, d)]
            assert there == [log.log.directory_id], f"after a crash before file operation {at} of the move"
            crashing.end()

    def _operations_of_a_move(self) -> int:
        node = Node(self.make_runtime, self.make_storage).start()
        target, log = self._to_move(node)
        log.flush()
        before = sum(node.runtime.disk.operations.values())
        node.storage.move_log(PARTITION, target)
        node.runtime.advance(1000)
        assert log.log.directory_id == target
        count = sum(node.runtime.disk.operations.values()) - before
        node.end()
        return count

    @pytest.mark.parametrize("what", ["truncate", "truncate fully", "advance", "delete", "roll"])
    def test_the_log_may_change_while_it_moves(self, node: Node, what: str) -> None:
        """Truncation, deletion, a roll or a new log start during a move also holds for the log in the target
        directory.
        """
        self.need_directories(node)
        target, log = self._to_move(node)
        node.storage.move_log(PARTITION, target)
        if what == "truncate":
            log.log.truncate_to(20)
        elif what == "truncate fully":
            log.log.truncate_fully(500)
        elif what == "advance":
            log.log.advance_log_start(31)
            log.log.drop_segments(31)
        elif what == "roll":
            log.log.roll()
        else:
            log.log.close()
            node.storage.delete_log(PARTITION)
            node.runtime.advance(120_000)
            assert node.storage.moves() == ()
            assert node.open().log.written_end_offset == 0
            return
        log.fill(2)
        state = (log.log.log_start_offset, log.spans())
        node.runtime.advance(1000)
        assert log.log.directory_id == target
        assert (log.log.log_start_offset, log.spans()) == state
        node.crash(power_cut=False)
        log = node.open(segment_bytes=1500)
        assert log.spans() == state[1]

    def _to_move(self, node: Node) -> tuple[bytes, Log]:
        log = node.open(segment_bytes=1500, directory_id=node.directories[0])
        log.fill(*[3] * 30)
        for name, data in SMALL_FILES.items():
            log.log.aux.write(name, data)
        return node.directories[1], log

    def _lies(self, node: Node, directory: bytes, path: str) -> bool:
        return any(
            path.startswith(info.path) and node.runtime.files.exists(path)
            for info in node.storage.log_dirs()
            if info.directory_id == directory
        )

    def _names(self, node: Node, directory: bytes) -> list[str]:
        """Names of the log's directories in one log directory, whatever suffix they have."""
        (path,) = [info.path for info in node.storage.log_dirs() if info.directory_id == directory]
        return [name for name in node.runtime.files.list_dir(path) if name.startswith(str(PARTITION))]


def use_device(log: Log) -> None:
    """Write and flush. Raises the error of either."""
    outcome = log.append(make_batch())
    if outcome.error is not None:
        raise outcome.error
    log.flush()


def crash_at(node: Node, operation: int, power_cut: bool) -> Callable[[str, str], None]:
    """Return a watcher of the disk that crashes the node before the ``operation``-th file operation from now on."""
    left = operation

    def watch(_: str, __: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            node.runtime.crash(power_cut=power_cut, luck=Adversary.LOSE)

    return watch
