"""A session of a real ZooKeeper, by kazoo. Its thread ends here: the loop sees completions, events and states."""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.protocol import serialization
from kazoo.protocol.states import EventType, KazooState, KeeperState
from kazoo.retry import KazooRetry

from blumfeld.spi.completion import Completion
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.zookeeper import (
    ANY_VERSION,
    BadVersionError,
    Check,
    ConnectionLostError,
    Create,
    Delete,
    DeniedError,
    Node,
    NodeExistsError,
    NodeStat,
    NoNodeError,
    NotEmptyError,
    Operation,
    OperationResult,
    SessionExpiredError,
    SessionState,
    Set,
    TooLargeError,
    Watch,
    WatchEvent,
    WatchKind,
    ZooKeeperError,
    request_bytes,
)
from blumfeld_consensus_zk_compat.zookeeper.acls import Acls
from blumfeld_consensus_zk_compat.zookeeper.kazoo_handler import LoopHandler, LoopQueue
from blumfeld_consensus_zk_compat.zookeeper.options import Access

T = TypeVar("T")

OLDEST_SERVER = (3, 5)
"""Create2 and TLS come with it, and Kafka 3.9's own client asks for it."""

_LOG = logging.getLogger(__name__)
_CONNECTION_LOST = (
    exceptions.ConnectionLoss,
    exceptions.ConnectionClosedError,
    exceptions.SessionExpiredError,
    exceptions.AuthFailedError,
)
"""The connection failed the request. A state that says why is on its way, and fails all that waits."""
_ERRORS: dict[type[Exception], type[ZooKeeperError]] = {
    exceptions.NoNodeError: NoNodeError,
    exceptions.NodeExistsError: NodeExistsError,
    exceptions.BadVersionError: BadVersionError,
    exceptions.NotEmptyError: NotEmptyError,
    exceptions.NoAuthError: DeniedError,
    exceptions.InvalidACLError: DeniedError,
    exceptions.SessionMovedError: ConnectionLostError,
    exceptions.OperationTimeoutError: ConnectionLostError,
}
_NOT_THE_CAUSE = (exceptions.RolledBackError, exceptions.RuntimeInconsistency)
"""Results of a failed ``multi``'s other operations: those before the one that failed, and those after it."""
_KINDS = {
    EventType.CREATED: WatchKind.CREATED,
    EventType.DELETED: WatchKind.DELETED,
    EventType.CHANGED: WatchKind.DATA,
    EventType.CHILD: WatchKind.CHILDREN,
}
_EPHEMERAL, _SEQUENTIAL = 1, 2


class _Waiting:
    """One request that waits. It stands in for kazoo's result: ``set`` and ``set_exception`` are called on kazoo's
    thread, and calling it is its turn on the loop."""

    __slots__ = ("completion", "failure", "path", "session", "value", "value_of", "watch")

    def __init__(
        self, session: KazooZooKeeper, path: str, value_of: Callable[[Any], Any], watch: _Watching | None
    ) -> None:
        self.completion: Completion[Any] = Completion()
        self.session = session
        self.path = path
        self.value_of = value_of
        self.watch = watch
        self.value: Any = None
        self.failure: Exception | None = None

    def set(self, value: Any = None) -> None:
        self.value = value
        self.session.queue.put(self)

    def set_exception(self, failure: Exception) -> None:
        self.failure = failure
        self.session.queue.put(self)

    def __call__(self) -> None:
        self.session.answered(self)


class _Watching:
    """One watch. kazoo keeps watches as a set of callbacks, so each is an object of its own, and is called on the
    loop."""

    __slots__ = ("callback", "path", "session")

    def __init__(self, session: KazooZooKeeper, path: str, callback: Watch) -> None:
        self.session = session
        self.path = path
        self.callback = callback

    def __call__(self, event: Any) -> None:
        self.session.watch_ended(self, event.type)


class _LastProblem(logging.Handler):
    """Keeps the last warning of kazoo: why no connection could be made."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = "no answer"

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()
        _LOG.debug("kazoo: %s", self.text)


class KazooZooKeeper:
    """``ZooKeeper``: one session, by kazoo.

    kazoo's connection thread puts answers, events and states into one queue, so their order is the server's. kazoo
    would begin a new session after an expired one: this object is at its end then.
    """

    def __init__(self, runtime: Runtime, access: Access) -> None:
        self.request_bytes_max = access.request_bytes_max
        self.queue = LoopQueue(runtime)
        self._runtime = runtime
        self._access = access
        self._chroot = access.chroot
        self._acls = Acls(secure=access.set_acl)
        self._state = SessionState.SUSPENDED
        self._session_id = 0
        self._listeners: list[Callable[[SessionState], None]] = []
        self._waiting: deque[_Waiting] = deque()
        self._watches: dict[_Watching, None] = {}
        self._connected: Completion[None] = Completion()
        self._ended: Completion[None] | None = None
        self._closed = False
        connect_timeout_s = access.session_timeout_ms / 1000.0 / (2 + len(access.servers.split(",")))
        self._handler = LoopHandler(self.queue, connect_timeout_s)
        self._problem = _LastProblem()
        self._client = self._make_client()

    def _make_client(self) -> Any:
        access, tls = self._access, self._access.tls
        logger = logging.Logger("kazoo", logging.WARNING)
        logger.addHandler(self._problem)
        client = KazooClient(
            hosts=access.servers,
            timeout=access.session_timeout_ms / 1000.0,
            handler=self._handler,
            auth_data=[("digest", access.digest)] if access.digest else None,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=1.0),
            logger=logger,
            use_ssl=tls is not None,
            ca=tls and (tls.ca_file or None),
            certfile=tls and (tls.certificate_file or None),
            keyfile=tls and (tls.key_file or None),
            keyfile_password=tls and (tls.key_password or None),
            check_hostname=tls is not None and tls.verify_host,
        )
        client.add_listener(self._kazoo_state)
        return client

    # The session

    @property
    def state(self) -> SessionState:
        """As ``ZooKeeper.state``."""
        return self._state

    @property
    def session_id(self) -> int:
        """As ``ZooKeeper.session_id``."""
        return self._session_id

    def on_state(self, listener: Callable[[SessionState], None]) -> None:
        """As ``ZooKeeper.on_state``."""
        self._listeners.append(listener)

    async def connect(self, timeout_ms: float) -> None:
        """As ``ZooKeeper.connect``. A server before 3.5 is refused with ``ZooKeeperError``."""
        late = self._runtime.call_later(timeout_ms, lambda: self._not_in_time(timeout_ms))
        self._client.start_async()
        try:
            await self._connected
            await self._check_server()
            if self._chroot:
                await self._find_chroot()
        except BaseException:
            await self.close()
            raise
        finally:
            late.cancel()

    def _not_in_time(self, timeout_ms: float) -> None:
        if not self._connected.done:
            servers, problem = self._access.servers, self._problem.text
            self._connected.fail(
                TimeoutError(f"no session with ZooKeeper at {servers} in {timeout_ms:g} ms; last: {problem}")
            )

    async def _check_server(self) -> None:
        """Refuse a server that is too old. One that doesn't tell its version is taken: it is 3.5 or later, since only
        those can be told not to."""
        answer: Completion[str] = Completion()
        self._handler.spawn(
            _ask_version, self._client, lambda text: self.queue.put(partial(answer.complete, text))
        )
        version = re.search(r"Zookeeper version: (\d+)\.(\d+)(\S*?)[-,\s]", await answer)
        if version is not None and (int(version[1]), int(version[2])) < OLDEST_SERVER:
            found = f"{version[1]}.{version[2]}{version[3]}"
            oldest = ".".join(map(str, OLDEST_SERVER))
            raise ZooKeeperError(
                "/", f"ZooKeeper at {self._access.servers} is {found}; {oldest} or later is needed"
            )

    async def _find_chroot(self) -> None:
        if self._access.create_chroot:
            names = self._chroot.split("/")[1:]
            for depth in range(1, len(names) + 1):
                path = "/" + "/".join(names[:depth])
                request = serialization.Create(path, b"", self._acls.of(path), 0)
                try:
                    await self._send(path, request, _nothing)
                except NodeExistsError:
                    continue
        elif await self.exists("/") is None:
            raise NoNodeError(self._chroot, "the chroot of the connect string isn't there")

    async def close(self) -> None:
        """As ``ZooKeeper.close``. Takes at most the session's timeout: a server that doesn't answer ends the session
        itself."""
        if self._closed:
            return
        self._closed = True
        if self._state is not SessionState.CONNECTED:
            self._handler.over = True
        self._state = SessionState.EXPIRED
        self._listeners.clear()
        self._watches.clear()
        self._fail_all(SessionExpiredError)
        if not self._connected.done:
            self._connected.fail(SessionExpiredError("/", "the session was closed before it was connected"))
        ended = self._end_client()
        late = self._runtime.call_later(self._access.session_timeout_ms, lambda: _complete(ended))
        await ended
        late.cancel()

    def _end_client(self) -> Completion[None]:
        """End kazoo's thread, once. It may wait for the server, so another thread waits for it."""
        if self._ended is None:
            ended = self._ended = Completion()
            self._handler.spawn(_stop, self._client, lambda: self.queue.put(lambda: _complete(ended)))
        return self._ended

    # Requests

    def get(self, path: str, watch: Watch | None = None) -> Completion[Node]:
        """As ``ZooKeeper.get``."""
        return self._read(serialization.GetData, path, _node, watch)

    def exists(self, path: str, watch: Watch | None = None) -> Completion[NodeStat | None]:
        """As ``ZooKeeper.exists``."""
        return self._read(serialization.Exists, path, _stat_or_none, watch)

    def children(self, path: str, watch: Watch | None = None) -> Completion[tuple[str, ...]]:
        """As ``ZooKeeper.children``."""
        return self._read(serialization.GetChildren, path, _names, watch)

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> Completion[str]:
        """As ``ZooKeeper.create``."""
        return self._write(Create(path, data, ephemeral, sequential), self._relative)

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Completion[NodeStat]:
        """As ``ZooKeeper.set``."""
        return self._write(Set(path, data, version), _stat)

    def delete(self, path: str, version: int = ANY_VERSION) -> Completion[None]:
        """As ``ZooKeeper.delete``."""
        return self._write(Delete(path, version), _nothing)

    def multi(self, operations: Sequence[Operation]) -> Completion[tuple[OperationResult, ...]]:
        """As ``ZooKeeper.multi``."""
        operations = tuple(operations)
        too_large = self._too_large(operations)
        if too_large is not None:
            return self._fail_later(Completion(), too_large)
        path = operations[0].path if operations else "/"
        request = serialization.Transaction([self._request(operation) for operation in operations])
        return self._send(path, request, lambda results: self._multi_results(operations, results))

    def sync(self, path: str) -> Completion[None]:
        """As ``ZooKeeper.sync``."""
        return self._send(path, serialization.Sync(self._full(path)), _nothing)

    def _read(
        self, request: Callable[..., Any], path: str, value_of: Callable[[Any], T], watch: Watch | None
    ) -> Completion[T]:
        watching = None if watch is None else _Watching(self, path, watch)
        return self._send(path, request(self._full(path), watching), value_of, watching)

    def _write(self, operation: Operation, value_of: Callable[[Any], T]) -> Completion[T]:
        too_large = self._too_large((operation,))
        if too_large is not None:
            return self._fail_later(Completion(), too_large)
        return self._send(operation.path, self._request(operation), value_of)

    def _too_large(self, operations: Sequence[Operation]) -> TooLargeError | None:
        size = request_bytes(operations, self._chroot, self._acls.bytes_max)
        if size <= self.request_bytes_max:
            return None
        allowed = f"{self.request_bytes_max} are allowed (jute.maxbuffer)"
        return TooLargeError(
            operations[0].path, f"{len(operations)} operations take {size} bytes, and {allowed}"
        )

    def _request(self, operation: Operation) -> Any:
        path = self._full(operation.path)
        match operation:
            case Create(data=data, ephemeral=ephemeral, sequential=sequential):
                flags = _EPHEMERAL * ephemeral | _SEQUENTIAL * sequential
                return serialization.Create(path, data, self._acls.of(operation.path), flags)
            case Set(data=data, version=version):
                return serialization.SetData(path, data, version)
            case Delete(version=version):
                return serialization.Delete(path, version)
            case Check(version=version):
                return serialization.CheckVersion(path, version)

    def _send(
        self, path: str, request: Any, value_of: Callable[[Any], T], watch: _Watching | None = None
    ) -> Completion[T]:
        waiting = _Waiting(self, path, value_of, watch)
        if self._state is not SessionState.CONNECTED:
            over = self._state is SessionState.EXPIRED
            return self._fail_later(
                waiting.completion, (SessionExpiredError if over else ConnectionLostError)(path)
            )
        self._waiting.append(waiting)
        # Not get_async and its like: they link a result after it was sent, and chain several, which loses the order.
        self._client._call(request, waiting)
        return waiting.completion

    def _fail_later(self, completion: Completion[T], error: ZooKeeperError) -> Completion[T]:
        self.queue.put(lambda: completion.fail(error))
        return completion

    def _multi_results(
        self, operations: Sequence[Operation], results: Sequence[Any]
    ) -> tuple[OperationResult, ...]:
        for operation, result in zip(operations, results, strict=False):
            if isinstance(result, Exception) and not isinstance(result, _NOT_THE_CAUSE):
                raise _error(result, operation.path)
        return tuple(self._multi_result(result) for result in results)

    def _multi_result(self, result: Any) -> OperationResult:
        if isinstance(result, str):
            return self._relative(result)
        return None if result is True else _stat(result)

    def _full(self, path: str) -> str:
        return self._chroot + path if path != "/" else self._chroot or "/"

    def _relative(self, path: str) -> str:
        return path.removeprefix(self._chroot) or "/"

    # On the loop, from kazoo's thread

    def answered(self, waiting: _Waiting) -> None:
        """A request's answer has come."""
        if waiting.completion.done or isinstance(waiting.failure, _CONNECTION_LOST):
            return
        first = self._waiting.popleft()
        assert first is waiting, f"{waiting.path} was answered before {first.path}"
        if waiting.failure is not None:
            waiting.completion.fail(_error(waiting.failure, waiting.path))
            return
        if waiting.watch is not None:
            self._watches[waiting.watch] = None
        try:
            value = waiting.value_of(waiting.value)
        except ZooKeeperError as error:
            waiting.completion.fail(error)
        else:
            waiting.completion.complete(value)

    def watch_ended(self, watching: _Watching, kind: str) -> None:
        """A watch's event has come. kazoo also calls it without an event when the connection goes."""
        if kind in _KINDS and watching in self._watches:
            del self._watches[watching]
            watching.callback(WatchEvent(_KINDS[kind], watching.path))

    def _kazoo_state(self, state: str) -> None:
        """On kazoo's thread: a new state."""
        if state == KazooState.CONNECTED:
            session_id: int = self._client.client_id[0]
            self.queue.put(lambda: self._is_connected(session_id))
        elif state == KazooState.SUSPENDED:
            self.queue.put(self._is_suspended)
        else:
            self._handler.over = True
            denied = self._client.client_state == KeeperState.AUTH_FAILED
            self.queue.put(lambda: self._is_over(denied=denied))

    def _is_connected(self, session_id: int) -> None:
        if not self._closed:
            self._session_id = session_id
            self._change_state(SessionState.CONNECTED)
            if not self._connected.done:
                self._connected.complete(None)

    def _is_suspended(self) -> None:
        if self._state is SessionState.CONNECTED:
            self._change_state(SessionState.SUSPENDED)
            self._fail_all(ConnectionLostError)
            self._end_watches()

    def _is_over(self, *, denied: bool) -> None:
        if self._closed:
            return
        self._change_state(SessionState.EXPIRED)
        self._fail_all(SessionExpiredError)
        self._end_watches()
        self._end_client()
        if not self._connected.done:
            reason = "the authentication failed" if denied else f"the session ended: {self._problem.text}"
            self._connected.fail((DeniedError if denied else SessionExpiredError)("/", reason))

    def _fail_all(self, error: type[ZooKeeperError]) -> None:
        failed, self._waiting = self._waiting, deque()
        for waiting in failed:
            waiting.completion.fail(error(waiting.path))

    def _end_watches(self) -> None:
        watches, self._watches = self._watches, {}
        for watching in watches:
            watching.callback(WatchEvent(WatchKind.LOST, watching.path))

    def _change_state(self, state: SessionState) -> None:
        if state is not self._state:
            self._state = state
            for listener in list(self._listeners):
                listener(state)


def _ask_version(client: Any, tell: Callable[[str], None]) -> None:
    """On a thread of its own: ask the server that the client is connected to."""
    text = ""
    try:
        text = client.command(b"srvr")
    except Exception as error:  # whatever kazoo, the socket or TLS raises: the version stays unknown
        _LOG.debug("the server's version is unknown: %r", error)
    finally:
        tell(text)


def _stop(client: Any, ended: Callable[[], None]) -> None:
    """On a thread of its own: end the session if a server is reached, and kazoo's thread."""
    try:
        client.stop()
        client.close()
    except Exception as error:  # its thread ends by itself, and the server ends the session
        _LOG.debug("kazoo was not stopped: %r", error)
    finally:
        ended()


def _complete(ended: Completion[None]) -> None:
    if not ended.done:
        ended.complete(None)


def _error(failure: Exception, path: str) -> ZooKeeperError:
    return _ERRORS.get(type(failure), ZooKeeperError)(path, str(failure) or type(failure).__name__)


def _stat(stat: Any) -> NodeStat:
    return NodeStat(
        stat.czxid, stat.mzxid, stat.version, stat.cversion, stat.ephemeralOwner, stat.numChildren, stat.ctime
    )


def _stat_or_none(stat: Any) -> NodeStat | None:
    return None if stat is None else _stat(stat)


def _node(value: Any) -> Node:
    data, stat = value
    return Node(data or b"", _stat(stat))


def _names(names: Any) -> tuple[str, ...]:
    return tuple(sorted(names))


def _nothing(_: object) -> None:
    return None
