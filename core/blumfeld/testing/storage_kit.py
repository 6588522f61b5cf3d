"""What the tests of the storage contract stand on: the storage under test, in a node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from blumfeld.spi.storage import LogStorage
from blumfeld.testing.fake_runtime import FakeRuntime
from blumfeld.testing.storage_node import Log, Node


class StorageKit:
    """What a subclass says of its storage, and fixtures. Everything runs on virtual time, in one thread.

    Whether it compacts, and in how many directories it keeps its logs, the storage says itself (``compacts``,
    ``log_dirs()``): make one with two directories to have placement, failures and moves tested.
    """

    survives_crash = False
    """What was flushed is there after a power cut, and what is left is a prefix. Needs ``has_files``."""
    has_files = False
    """It keeps its logs in ``runtime.files``: they are there after a restart, and the directory is locked."""

    def make_storage(self, runtime: FakeRuntime) -> LogStorage:
        """Your storage, neither started nor opened. Called again, with the same disk, for a restart."""
        raise NotImplementedError("override make_storage")

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

    def need_compaction(self, node: Node) -> None:
        """Skip where the storage doesn't claim to compact (``LogStorage.compacts``)."""
        if not node.storage.compacts:
            pytest.skip("does not compact")

    def need_directories(self, node: Node) -> None:
        """Skip where there is one directory: have :meth:`make_storage` make one with two or more."""
        if len(node.directories) < 2:
            pytest.skip("has one directory")
        self.need_files(node, simulated=True)

    def need_files(self, node: Node, *, simulated: bool = False) -> None:
        """Skip where the storage has no files, or the disk is real and can't be made to fail."""
        if not self.has_files:
            pytest.skip("keeps nothing in files")
        if simulated and not node.is_simulated:
            pytest.skip("a real disk can't be made to fail")
