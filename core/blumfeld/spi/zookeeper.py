"""ZooKeeper: a session with a tree of versioned nodes, as a consensus that keeps its state in one needs it.

The port is narrow on purpose, and each call keeps the order that ZooKeeper gives: requests of one session take effect
and complete in the order of the calls, and a watch event comes before the completion of any read that shows the change
that it tells of. Everything happens on the loop; threads of a client library end behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol, TypeAlias

import msgspec

from blumfeld.spi.completion import Completion

ANY_VERSION = -1
"""The version for ``set`` or ``delete`` that every node matches."""


class ZooKeeperError(Exception):
    """A request failed. ``path`` is that of the request, of the operation that failed if it was a ``multi``."""

    def __init__(self, path: str, reason: str = "") -> None:
        super().__init__(f"{path}: {reason or type(self).__name__}")
        self.path = path


class NoNodeError(ZooKeeperError):
    """There is no node at this path; for a creation, none at its parent's."""


class NodeExistsError(ZooKeeperError):
    """A node to be created is there. After a lost answer it may be our own."""


class BadVersionError(ZooKeeperError):
    """The node has another version than the request names: somebody else has written it."""


class NotEmptyError(ZooKeeperError):
    """A node to be deleted has children."""


class DeniedError(ZooKeeperError):
    """The session may not do this: an ACL of the node, or no authentication."""


class TooLargeError(ZooKeeperError):
    """The request takes more bytes than ``request_bytes_max``. It was not sent."""


class ConnectionLostError(ZooKeeperError):
    """The connection went before the answer came. Whether a change took place isn't known. The session may go on."""


class SessionExpiredError(ZooKeeperError):
    """The session is over, and its ephemeral nodes are gone. No later request of it succeeds."""


class NodeStat(msgspec.Struct, frozen=True):
    """The facts about one node."""

    czxid: int
    """The transaction that created it. It grows with time; nodes that one ``multi`` created share it."""
    mzxid: int
    """The transaction that last wrote it."""
    version: int
    """The number of writes since its creation."""
    cversion: int
    """The number of changes of its children."""
    ephemeral_owner: int
    """The session whose end removes it; 0 for a persistent node."""
    children: int
    """The number of its children."""
    ctime_ms: int = 0
    """When it was created, by the server's clock."""


class Node(msgspec.Struct, frozen=True):
    """One node as it was read."""

    data: bytes
    stat: NodeStat


class Create(msgspec.Struct, frozen=True):
    """Operation of a ``multi``: as ``ZooKeeper.create``. Its result is the path."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class Set(msgspec.Struct, frozen=True):
    """Operation of a ``multi``: as ``ZooKeeper.set``. Its result is the node's stat."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(msgspec.Struct, frozen=True):
    """Operation of a ``multi``: as ``ZooKeeper.delete``. Its result is ``None``."""

    path: str
    version: int = ANY_VERSION


class Check(msgspec.Struct, frozen=True):
    """Operation of a ``multi``: the node is there in this version. Its result is ``None``."""

    path: str
    version: int = ANY_VERSION


Operation: TypeAlias = Create | Set | Delete | Check
OperationResult: TypeAlias = str | NodeStat | None


_HEADER_BYTES = 8
_MULTI_HEADER_BYTES = 9


def request_bytes(operations: Sequence[Operation], chroot: str = "", acl_bytes: int = 27) -> int:
    """Return the bytes of a ``multi`` of these as the server counts them against ``jute.maxbuffer``.

    :param acl_bytes: of the list that each creation carries; by default everybody may do everything
    """
    total = _HEADER_BYTES + _MULTI_HEADER_BYTES
    for operation in operations:
        total += _MULTI_HEADER_BYTES + 4 + len((chroot + operation.path).encode())
        match operation:
            case Create(data=data):
                total += 4 + len(data) + acl_bytes + 4
            case Set(data=data):
                total += 4 + len(data) + 4
            case _:
                total += 4
    return total


class WatchKind(Enum):
    """The change that ended a watch."""

    CREATED = "created"
    DELETED = "deleted"
    DATA = "data"
    CHILDREN = "children"
    LOST = "lost"
    """The connection went, and the watch with it: anything may have changed. Read again to watch again."""


class WatchEvent(msgspec.Struct, frozen=True):
    """A watch has ended: it tells of one change."""

    kind: WatchKind
    path: str


Watch: TypeAlias = Callable[[WatchEvent], None]


class SessionState(Enum):
    """The session, as this client knows it."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """No server is reached. The ephemeral nodes may be there, or gone; requests fail with ``ConnectionLostError``."""
    EXPIRED = "expired"
    """Over, for good. Another session is another object."""


class ZooKeeper(Protocol):
    """One session. Paths begin with ``/`` and are relative to the chroot of the connect string.

    Any completion may fail with ``ConnectionLostError``, ``SessionExpiredError`` or ``DeniedError``, and none does so
    inside of the call. Watches are one-shot: the callback is called once, and not after :meth:`close`.

    When the connection goes, listeners are told SUSPENDED first; then the waiting requests fail, in order; then each
    watch ends with ``LOST``. A change whose answer was lost has taken place before the session is CONNECTED again, or
    does so before any later request of it.
    """

    request_bytes_max: int
    """``jute.maxbuffer``: the most that one request may take."""

    @property
    def state(self) -> SessionState:
        """The state now."""
        ...

    @property
    def session_id(self) -> int:
        """The session's id, as ``ephemeral_owner`` has it; 0 before :meth:`connect` returned."""
        ...

    def on_state(self, listener: Callable[[SessionState], None]) -> None:
        """Call ``listener`` with each new state, in order with completions and watch events. One of EXPIRED is the
        last."""
        ...

    async def connect(self, timeout_ms: float) -> None:
        """Begin the session.

        :raises TimeoutError: no server answered in time: what was tried is in the message
        :raises DeniedError: the authentication failed
        :raises NoNodeError: the chroot isn't there, and was not to be created
        :raises ZooKeeperError: the server can't be used: it is too old
        """
        ...

    def get(self, path: str, watch: Watch | None = None) -> Completion[Node]:
        """Read a node. With ``watch``: told of its next change or deletion. Fails with ``NoNodeError``, and then
        watches nothing."""
        ...

    def exists(self, path: str, watch: Watch | None = None) -> Completion[NodeStat | None]:
        """Read the facts about a node; ``None`` if there is none. With ``watch``: told of its next creation, change or
        deletion."""
        ...

    def children(self, path: str, watch: Watch | None = None) -> Completion[tuple[str, ...]]:
        """Read the names of a node's children, sorted. With ``watch``: told of the next child that comes or goes, or of
        the node's deletion. Fails with ``NoNodeError``, and then watches nothing."""
        ...

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> Completion[str]:
        """Create a node, and return its path: with ``sequential`` ten digits are appended to it.

        Fails with ``NodeExistsError``, or ``NoNodeError``: no parent."""
        ...

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Completion[NodeStat]:
        """Replace a node's data. Fails with ``NoNodeError`` or ``BadVersionError``."""
        ...

    def delete(self, path: str, version: int = ANY_VERSION) -> Completion[None]:
        """Remove a node. Fails with ``NoNodeError``, ``BadVersionError`` or ``NotEmptyError``."""
        ...

    def multi(self, operations: Sequence[Operation]) -> Completion[tuple[OperationResult, ...]]:
        """Do all of these or none; the results are in their order. Fails with the error of the first operation that
        can't be done, or ``TooLargeError``."""
        ...

    def sync(self, path: str) -> Completion[None]:
        """Complete when this session's server has seen all that was written before the call."""
        ...

    async def close(self) -> None:
        """End the session: its ephemeral nodes go. Waiting requests fail with ``SessionExpiredError``. Legal without
        :meth:`connect`, and twice."""
        ...
