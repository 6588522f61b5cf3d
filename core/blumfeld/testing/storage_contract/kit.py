"""What the tests of the storage contract stand on: the storage under test, in a node, and what it claims."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

import pytest

from blumfeld.spi.storage import LogStorage
from blumfeld.testing.fakes.runtime import FakeRuntime
from blumfeld.testing.not_tried import not_tried
from blumfeld.testing.storage_driver.node import Log, Node


class StorageKit:
    """What a subclass says of its storage, and fixtures. Everything runs on virtual time, in one thread.

    Each flag is a claim, and the kit tries what is claimed. What is not claimed, or can't be tried, is listed at the
    end of the pytest run, under "promises that were not tried": read that list before you believe a green run.

    Whether it compacts, whether its logs have segments, and in how many directories they lie, the storage says itself
    (``compacts``, ``log_class``, ``log_dirs()``): make one with two directories to have placement, failures and moves
    tested.
    """

    survives_restart = False
    """What was stored is there after a stop and a start on the same disk; the storage is a ``LastingStorage``, and two
    of them can't use one directory at once. With :meth:`make_storage_in` it is killed on a real disk too.
    """
    segment_files = False
    """Each segment lies in files of ``runtime.files`` that ``SegmentInfo.files`` names, the records' first; those of a
    dropped segment are named ``….deleted`` until ``file.delete.delay.ms`` has passed.
    """
    simulated_disk = False
    """All that is written goes through ``runtime.files``, what may block through ``runtime.offload``, and time through
    the runtime's clock: faults of a simulated disk reach the storage, and a whole broker can be simulated on it.
    """
    survives_crash = False
    """What was flushed is there after a power cut, and what is left is a prefix. Is tried if ``simulated_disk``."""

    def make_storage(self, runtime: FakeRuntime) -> LogStorage:
        """Your storage, neither started nor opened. Called again, with the same disk, for a restart."""
        raise NotImplementedError("override make_storage")

    def make_storage_in(self, runtime: FakeRuntime, directory: str) -> LogStorage:
        """Your storage on the real disk, with all its files in ``directory``, which is there and may be empty.

        Called in processes that are killed: by the class of your kit, imported by its name. ``runtime.files`` are real.
        """
        raise NotImplementedError("override make_storage_in")

    def make_runtime(self, previous: FakeRuntime | None) -> FakeRuntime:
        """The world for the next process on the same disk; override it to use real files."""
        if previous is None:
            return FakeRuntime(1)
        return FakeRuntime(previous.random.randrange(1 << 30), disk=previous.disk)  # ids must be new ones

    @pytest.fixture
    def node(self) -> Iterator[Node]:
        """A started node."""
        node = Node(self.make_runtime, self.make_storage).start()
        yield node
        node.end()

    @pytest.fixture
    def log(self, node: Node) -> Log:
        """A new log with small indexes."""
        return node.open(index_interval_bytes=100)

    def not_tried(self, why: str) -> NoReturn:
        """Leave a test out, and have that listed at the end of the run."""
        not_tried(f"the storage contract of {type(self).__name__}", why)

    def need_compaction(self, node: Node) -> None:
        """Leave out where the storage doesn't claim to compact (``LogStorage.compacts``)."""
        if not node.storage.compacts:
            self.not_tried("compacts is false: compacted topics keep every record")

    def need_segments(self, node: Node) -> None:
        """Leave out where the logs have no segments (``log_class`` is no ``SegmentedLog``)."""
        if not node.has_segments:
            self.not_tried("log_class is no SegmentedLog: rolls, retention, dropped segments")

    def need_directories(self, node: Node) -> None:
        """Leave out where there is one directory: have :meth:`make_storage` make one with two or more."""
        if len(node.directories) < 2:
            self.not_tried("make_storage makes one directory: placement, failures of one of several, moves")
        self.need_restart()
        self.need_simulated_disk(node)

    def need_restart(self) -> None:
        """Leave out where the storage doesn't claim to be there after a restart."""
        if not self.survives_restart:
            self.not_tried("survives_restart is not claimed")

    def need_crash(self, node: Node) -> None:
        """Leave out where the storage doesn't claim to survive a power cut, or none can be made."""
        if not self.survives_crash:
            self.not_tried("survives_crash is not claimed: power cuts")
        self.need_restart()
        self.need_simulated_disk(node)

    def need_simulated_disk(self, node: Node) -> None:
        """Leave out where the disk can't be made to fail."""
        if not self.simulated_disk:
            self.not_tried("simulated_disk is not claimed: faults of the disk at any operation")
        if not node.is_simulated:
            self.not_tried("make_runtime gives a real disk, which can't be made to fail at any operation")

    def need_segment_files(self) -> None:
        """Leave out where ``SegmentInfo.files`` is empty."""
        if not self.segment_files:
            self.not_tried("segment_files is not claimed")
