"""The tree of a simulated ZooKeeper: nodes with their versions, and what each operation does to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec

from blumfeld.spi.zookeeper import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    Node,
    NodeExistsError,
    NodeStat,
    NoNodeError,
    NotEmptyError,
    Operation,
    OperationResult,
    Set,
    WatchKind,
    ZooKeeperError,
)

Undo = Callable[[], None]


class Stamp(msgspec.Struct, frozen=True):
    """One transaction: its number, its session and the server's clock."""

    zxid: int
    session_id: int
    time_ms: int


class _Znode:
    __slots__ = ("children", "creations", "ctime_ms", "czxid", "data", "mzxid", "owner", "version")

    def __init__(self, data: bytes, stamp: Stamp, owner: int) -> None:
        self.data = data
        self.czxid = self.mzxid = stamp.zxid
        self.ctime_ms = stamp.time_ms
        self.version = 0
        self.creations = 0
        """Children created so far: the number of the next sequential one."""
        self.owner = owner
        self.children: dict[str, None] = {}

    def stat(self) -> NodeStat:
        return NodeStat(
            czxid=self.czxid,
            mzxid=self.mzxid,
            version=self.version,
            # Each child that is gone was created and deleted.
            cversion=2 * self.creations - len(self.children),
            ephemeral_owner=self.owner,
            children=len(self.children),
            ctime_ms=self.ctime_ms,
        )

    def copy(self) -> _Znode:
        copied = object.__new__(_Znode)
        for name in self.__slots__:
            setattr(copied, name, getattr(self, name))
        copied.children = dict(self.children)
        return copied


def parent_of(path: str) -> str:
    """Return the path of a node's parent."""
    return path.rpartition("/")[0] or "/"


class ZnodeTree:
    """The nodes that one server has."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Znode] = {"/": _Znode(b"", Stamp(0, 0, 0), 0)}
        self._owned: dict[int, dict[str, None]] = {}

    def copy(self) -> ZnodeTree:
        """Return a tree of its own with the same nodes."""
        copied = ZnodeTree()
        copied._nodes = {path: node.copy() for path, node in self._nodes.items()}
        copied._owned = {session: dict(paths) for session, paths in self._owned.items()}
        return copied

    # Reads

    def get(self, path: str) -> Node:
        """Return a node."""
        node = self._node(path)
        return Node(node.data, node.stat())

    def exists(self, path: str) -> NodeStat | None:
        """Return the facts about a node, or ``None``."""
        node = self._nodes.get(path)
        return None if node is None else node.stat()

    def children(self, path: str) -> tuple[str, ...]:
        """Return the names of a node's children, sorted."""
        return tuple(sorted(self._node(path).children))

    def owned_by(self, session_id: int) -> list[str]:
        """Return the paths of a session's ephemeral nodes, in the order of their creation."""
        return list(self._owned.get(session_id, ()))

    def paths(self) -> list[str]:
        """Return all paths, sorted."""
        return sorted(self._nodes)

    # Changes

    def change(
        self, operations: Sequence[Operation], stamp: Stamp
    ) -> tuple[list[Operation], list[OperationResult]]:
        """Do all of the operations or none. Return them as another tree is to do them again, and their results.

        :raises ZooKeeperError: the first operation that can't be done
        """
        done: list[Operation] = []
        results: list[OperationResult] = []
        undo: list[Undo] = []
        try:
            for operation in operations:
                resolved, result = self._change_one(operation, stamp, undo)
                done.append(resolved)
                results.append(result)
        except ZooKeeperError:
            for step in reversed(undo):
                step()
            raise
        return done, results

    def _change_one(
        self, operation: Operation, stamp: Stamp, undo: list[Undo]
    ) -> tuple[Operation, OperationResult]:
        match operation:
            case Create():
                created = self._create(operation, stamp, undo)
                return created, created.path
            case Set():
                node = self._node(operation.path, operation.version)
                undo.append(_writer(node, node.data, node.mzxid, node.version))
                _writer(node, operation.data, stamp.zxid, node.version + 1)()
                return msgspec.structs.replace(operation, version=ANY_VERSION), node.stat()
            case Delete():
                self._delete(operation, undo)
                return msgspec.structs.replace(operation, version=ANY_VERSION), None
            case Check():
                self._node(operation.path, operation.version)
                return msgspec.structs.replace(operation, version=ANY_VERSION), None

    def _create(self, operation: Create, stamp: Stamp, undo: list[Undo]) -> Create:
        asked = path = operation.path
        parent = None if path == "/" else self._nodes.get(parent_of(path))
        if parent is None and path != "/":
            raise NoNodeError(asked, f"{parent_of(path)}: no such parent")
        if parent is not None and operation.sequential:
            path = f"{path}{parent.creations:010d}"
        if path in self._nodes or parent is None:
            raise NodeExistsError(asked)
        if parent.owner:
            raise ZooKeeperError(asked, "an ephemeral node has no children")
        owner = stamp.session_id if operation.ephemeral else 0
        self._add(path, _Znode(operation.data, stamp, owner), parent)
        parent.creations += 1

        def take_back() -> None:
            self._remove(path)
            parent.creations -= 1

        undo.append(take_back)
        return Create(path, operation.data, ephemeral=operation.ephemeral)

    def _delete(self, operation: Delete, undo: list[Undo]) -> None:
        path = operation.path
        if path == "/":
            raise ZooKeeperError(path, "the root can't be deleted")
        node = self._node(path, operation.version)
        if node.children:
            raise NotEmptyError(path)
        parent = self._nodes[parent_of(path)]
        self._remove(path)
        undo.append(lambda: self._add(path, node, parent))

    def _add(self, path: str, node: _Znode, parent: _Znode) -> None:
        self._nodes[path] = node
        parent.children[path.rpartition("/")[2]] = None
        if node.owner:
            self._owned.setdefault(node.owner, {})[path] = None

    def _remove(self, path: str) -> None:
        node = self._nodes.pop(path)
        del self._nodes[parent_of(path)].children[path.rpartition("/")[2]]
        if node.owner:
            del self._owned[node.owner][path]

    def _node(self, path: str, version: int = ANY_VERSION) -> _Znode:
        node = self._nodes.get(path)
        if node is None:
            raise NoNodeError(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersionError(path, f"version {node.version}, and {version} was expected")
        return node


def _writer(node: _Znode, data: bytes, mzxid: int, version: int) -> Undo:
    def write() -> None:
        node.data, node.mzxid, node.version = data, mzxid, version

    return write


class Watcher(Protocol):
    """A connection, as the server's watches see it."""

    def event(self, kind: WatchKind, path: str) -> None:
        """Send one event."""
        ...


class WatchTable:
    """The watches that one server keeps, by path: one for a connection, however often it asked."""

    def __init__(self) -> None:
        self._data: dict[str, dict[Watcher, None]] = {}
        self._children: dict[str, dict[Watcher, None]] = {}

    def watch_data(self, path: str, watcher: Watcher) -> None:
        """Tell ``watcher`` of this node's next creation, change or deletion."""
        self._data.setdefault(path, {})[watcher] = None

    def watch_children(self, path: str, watcher: Watcher) -> None:
        """Tell ``watcher`` of the next child that comes or goes, or of this node's deletion."""
        self._children.setdefault(path, {})[watcher] = None

    def forget(self, watcher: Watcher) -> None:
        """Remove all watches of a connection."""
        for table in (self._data, self._children):
            for path in [path for path, watchers in table.items() if watcher in watchers]:
                del table[path][watcher]
                if not table[path]:
                    del table[path]

    def changed(self, operations: Iterable[Operation]) -> None:
        """Tell the watchers of what was done, in its order."""
        for operation in operations:
            match operation:
                case Create(path):
                    self._tell(WatchKind.CREATED, path, self._data.pop(path, {}))
                    self._tell(WatchKind.CHILDREN, parent_of(path), self._children.pop(parent_of(path), {}))
                case Set(path):
                    self._tell(WatchKind.DATA, path, self._data.pop(path, {}))
                case Delete(path):
                    # A connection that watches the node in both ways is told once.
                    watchers = self._data.pop(path, {}) | self._children.pop(path, {})
                    self._tell(WatchKind.DELETED, path, watchers)
                    self._tell(WatchKind.CHILDREN, parent_of(path), self._children.pop(parent_of(path), {}))

    def _tell(self, kind: WatchKind, path: str, watchers: Iterable[Watcher]) -> None:
        for watcher in watchers:
            watcher.event(kind, path)
