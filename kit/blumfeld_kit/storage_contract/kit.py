"""The base of the storage contract: the storage under test, its claims, and the fixtures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

import pytest

from blumfeld.spi.storage import LogStorage
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.not_tried import not_tried
from blumfeld_kit.storage_driver.node import Log, Node

ANY = r"."
"""Any message. The contract says which exception is raised, and that it has a message, but not its wording."""


class StorageKit:
    """The claims of a subclass about its storage, and the fixtures. Everything runs on virtual time, in one thread.

    Each flag is a claim, and the kit tests each claim. Every claim that is not made, or can't be tested, is listed at
    the end of the pytest run under "promises that were not tried". Read that list before you believe a green run.

    The storage itself says whether it compacts (``compacts``), whether its logs have segments (``log_class``), and how
    many directories it has (``log_dirs()``). Make one with two directories to test placement, failures and moves.
    """

    survives_restart = False
    """Stored batches are there after a stop and a start on the same disk. The storage is a ``LastingStorage``, and two
    of them can't use one directory at once. With :meth:`make_storage_in` the kit kills it on a real disk too.
    """
    segment_files = False
    """Each segment lies in files of ``runtime.files`` that ``SegmentInfo.files`` names, the file of records first. The
    files of a dropped segment are named ``….deleted`` until ``file.delete.delay.ms`` has passed.
    """
    simulated_disk = False
    """All writes go through ``runtime.files``, all blocking work through ``runtime.offload``, and all times come from
    the runtime. Faults of a simulated disk then reach the storage, and a whole broker can be simulated on it.
    """
    survives_crash = False
    """Flushed batches are there after a power cut, and the log is a prefix. Tested only with ``simulated_disk``."""

    def make_storage(self, runtime: FakeRuntime) -> LogStorage:
        """Return your storage, not started. The kit calls this again with the same disk for a restart."""
        raise NotImplementedError("override make_storage")

    def make_storage_in(self, runtime: FakeRuntime, directory: str) -> LogStorage:
        """Return your storage on the real disk. All its files lie in ``directory``, which exists and may be empty.

        The kit calls this in processes that it kills. They import the class of your kit by its name. ``runtime.files``
        are real files.
        """
        raise NotImplementedError("override make_storage_in")

    def make_runtime(self, previous: FakeRuntime | None) -> FakeRuntime:
        """Return the runtime for the next process on the same disk. Override it to use real files."""
        if previous is None:
            return FakeRuntime(1)
        return FakeRuntime(
            previous.random.randrange(1 << 30), disk=previous.disk
        )  # another seed: the next process must not draw the same ids

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
        """Skip the running test, and list it at the end of the run."""
        not_tried(f"the storage contract of {type(self).__name__}", why)

    def need_compaction(self, node: Node) -> None:
        """Skip the test unless the storage claims to compact (``LogStorage.compacts``)."""
        if not node.storage.compacts:
            self.not_tried("compacts is false: compacted topics keep every record")

    def need_segments(self, node: Node) -> None:
        """Skip the test unless the logs have segments (``log_class`` is a ``SegmentedLog``)."""
        if not node.has_segments:
            self.not_tried("log_class is no SegmentedLog: rolls, retention, dropped segments")

    def need_directories(self, node: Node) -> None:
        """Skip the test unless :meth:`make_storage` makes a storage with two or more directories."""
        if len(node.directories) < 2:
            self.not_tried("make_storage makes one directory: placement, failures of one of several, moves")
        self.need_restart()
        self.need_simulated_disk(node)

    def need_restart(self) -> None:
        """Skip the test unless the storage claims to survive a restart."""
        if not self.survives_restart:
            self.not_tried("survives_restart is not claimed")

    def need_crash(self, node: Node) -> None:
        """Skip the test unless the storage claims to survive a power cut, and one can be simulated."""
        if not self.survives_crash:
            self.not_tried("survives_crash is not claimed: power cuts")
        self.need_restart()
        self.need_simulated_disk(node)

    def need_simulated_disk(self, node: Node) -> None:
        """Skip the test unless the disk is simulated, so that it can fail."""
        if not self.simulated_disk:
            self.not_tried(
                "simulated_disk is not claimed: faults of the disk at any operation, blumfeld simulate"
            )
        if not node.is_simulated:
            self.not_tried("make_runtime gives a real disk, which can't be made to fail at any operation")

    def need_segment_files(self) -> None:
        """Skip the test unless ``SegmentInfo.files`` names files."""
        if not self.segment_files:
            self.not_tried("segment_files is not claimed")
