"""A session whose requests are answered at once, or when a test says so, over the tree of the simulated ZooKeeper."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.zookeeper import (
    Create,
    Node,
    NodeStat,
    NoNodeError,
    Operation,
    OperationResult,
    Set,
    Watch,
    WatchEvent,
    WatchKind,
    ZooKeeperError,
)
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_kit.fakes.znodes import Stamp, ZnodeTree
from tests.plugins.consensus_zk_compat.tree.kafka_nodes import KafkaNode

T = TypeVar("T")
REQUEST_BYTES_MAX = 0xFFFFF


class TreeSession:
    """The reads of ``ZooKeeper``, and its ``multi``.

    :param waits: hold answers back until :meth:`answer`
    """

    def __init__(self, tree: ZnodeTree | None = None, *, waits: bool = False) -> None:
        self.tree = ZnodeTree() if tree is None else tree
        self.reads: list[str] = []
        self.watched: dict[str, Watch] = {}
        self.multis: list[tuple[Operation, ...]] = []
        self.waiting: deque[Callable[[], None]] = deque()
        self.waiting_most = 0
        self._waits = waits
        self._zxid = 1

    def get(self, path: str, watch: Watch | None = None) -> Completion[Node]:
        return self._read(path, watch, lambda: self.tree.get(path))

    def exists(self, path: str, watch: Watch | None = None) -> Completion[NodeStat | None]:
        return self._read(path, watch, lambda: self.tree.exists(path), absent=True)

    def children(self, path: str, watch: Watch | None = None) -> Completion[tuple[str, ...]]:
        return self._read(path, watch, lambda: self.tree.children(path))

    def multi(self, operations: Sequence[Operation]) -> Completion[tuple[OperationResult, ...]]:
        """Do all or none, at once."""
        done: Completion[tuple[OperationResult, ...]] = Completion()
        self.multis.append(tuple(operations))
        try:
            done.complete(tuple(self.change(*operations)))
        except ZooKeeperError as error:
            done.fail(error)
        return done

    def change(self, *operations: Operation) -> list[OperationResult]:
        """Do all or none, at once."""
        self._zxid += 1
        return self.tree.change(operations, Stamp(self._zxid, 0, 0))[1]

    def put(self, path: str, data: bytes = b"", version: int = 0, czxid: int = 0) -> int:
        """Make a node, and those above it; its ``czxid``."""
        for above in paths.above(path):
            if self.tree.exists(above) is None:
                self.change(Create(above))
        self._zxid = max(self._zxid + 1, czxid)
        stamp = Stamp(czxid or self._zxid, 0, 0)
        if self.tree.exists(path) is None:
            self.tree.change([Create(path, data)], stamp)
        for _ in range(version):
            self.change(Set(path, data))
        return stamp.zxid

    def put_all(self, nodes: Sequence[KafkaNode]) -> None:
        """Make Kafka's nodes, with their versions."""
        for node in nodes:
            if node.path != "/":
                self.put(node.path, node.data, node.version, node.czxid)

    def answer(self, count: int = 1) -> None:
        """Answer so many of the requests that wait."""
        for _ in range(min(count, len(self.waiting))):
            self.waiting.popleft()()

    def fire(self, path: str, kind: WatchKind = WatchKind.DATA) -> None:
        """Tell the watch that was left at a path."""
        self.watched.pop(path)(WatchEvent(kind, path))

    def _read(
        self, path: str, watch: Watch | None, read: Callable[[], T], *, absent: bool = False
    ) -> Completion[T]:
        done: Completion[T] = Completion()
        self.reads.append(path)

        def answer() -> None:
            try:
                value = read()
            except NoNodeError as error:
                done.fail(error)
            else:
                if watch is not None:
                    self.watched[path] = watch
                done.complete(value)

        if self._waits:
            self.waiting.append(answer)
            self.waiting_most = max(self.waiting_most, len(self.waiting))
        else:
            answer()
        return done


def at_once(steps: Steps[T]) -> T:
    """The result of steps whose requests are answered at once."""
    try:
        while True:
            awaited = next(steps)
            assert awaited is None or awaited.done
    except StopIteration as end:
        result: T = end.value
        return result


def session_of(session: TreeSession) -> Any:
    """As the port."""
    return session
