"""A session of a simulated ZooKeeper: the client's side."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from blumfeld.spi.completion import Completion
from blumfeld.spi.runtime import Runtime, Timer
from blumfeld.spi.zookeeper import (
    ANY_VERSION,
    ConnectionLostError,
    Create,
    Delete,
    Node,
    NodeExistsError,
    NodeStat,
    NoNodeError,
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
from blumfeld_kit.fakes.znodes import WatchTable
from blumfeld_kit.fakes.zookeeper_servers import Connection, Ensemble, Outcome, Read, Request, Write

T = TypeVar("T")

RECONNECT_MS = (50.0, 1_000.0)
"""The pause before the next attempt to connect is drawn from this range."""


class _Waiting:
    """A request that was sent, and its completion."""

    __slots__ = ("completion", "path", "request", "value", "watch")

    def __init__(
        self, path: str, request: Request, value: Callable[[Any], Any], watch: _Watching | None
    ) -> None:
        self.completion: Completion[Any] = Completion()
        self.path = path
        self.request = request
        self.value = value
        self.watch = watch


class _Watching:
    """A watch that was asked for. It is set when its answer has come."""

    __slots__ = ("callback", "children", "path")

    def __init__(self, path: str, callback: Watch, *, children: bool) -> None:
        self.path = path
        self.callback = callback
        self.children = children


class SimulatedSession:
    """``ZooKeeper``: one session of one client. The methods under "Faults" are for a scenario."""

    def __init__(
        self,
        ensemble: Ensemble,
        runtime: Runtime,
        *,
        chroot: str,
        create_chroot: bool,
        timeout_ms: float,
        auth: str,
    ) -> None:
        self.runtime = runtime
        self.timeout_ms = timeout_ms
        self.auth = auth
        self.request_bytes_max = ensemble.request_bytes_max
        self.slow_ms = 0.0
        """Is added to each message's latency."""
        self.answers_to_lose = 0
        """So many writes will take place, and in place of the answer the connection goes."""
        self._ensemble = ensemble
        self._chroot = chroot.rstrip("/")
        self._create_chroot = create_chroot
        self._state = SessionState.SUSPENDED
        self._session_id = 0
        self._listeners: list[Callable[[SessionState], None]] = []
        self._connection: Connection | None = None
        self._held = False
        self._paused = False
        self._closed = False
        self._last_zxid = 0
        self._heard_ms = 0.0
        self._tick: Timer | None = None
        self._attempts = 0
        self._waiting: deque[_Waiting] = deque()
        self._watches: dict[tuple[str, bool], list[_Watching]] = {}
        self._connected: Completion[None] = Completion()

    # Faults

    def cut(self) -> None:
        """Lose every packet between this client and all servers until :meth:`heal`."""
        self._hold(True)

    def heal(self) -> None:
        """End a cut. What TCP still holds arrives, if neither end has given the connection up."""
        self._hold(False)

    def pause(self) -> None:
        """Stop the client in its tracks until :meth:`resume`: it neither sends, nor reads, nor looks at a clock."""
        self._paused = True
        self._hold(True)

    def resume(self) -> None:
        """End a pause. The client reads first what had arrived."""
        self._paused = False
        self._heard_ms = self.runtime.monotonic_ms()
        self._hold(False)

    def disconnect(self) -> None:
        """Reset the connection. The client connects again soon."""
        if self._connection is not None:
            self._connection.close()

    def lose_answers(self, count: int = 1) -> None:
        """Let the next writes take place and their answers be lost with the connection."""
        self.answers_to_lose = count

    def _hold(self, held: bool) -> None:
        self._held = held
        if (connection := self._connection) is not None:
            for wire in (connection.up, connection.down):
                if held:
                    wire.hold()
                else:
                    wire.release()

    @property
    def server(self) -> int | None:
        """The number of the server that this client is connected to."""
        return None if self._connection is None else self._connection.server.number

    # ZooKeeper: the session

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
        """As ``ZooKeeper.connect``."""
        late = self.runtime.call_later(timeout_ms, lambda: self._give_up(timeout_ms))
        self._connect()
        try:
            await self._connected
        finally:
            late.cancel()
        if self._chroot:
            await self._find_chroot()

    def _give_up(self, timeout_ms: float) -> None:
        self._end()
        servers = len(self._ensemble.servers)
        self._connected.fail(
            TimeoutError(
                f"none of {servers} simulated ZooKeeper servers answered in {timeout_ms:g} ms, "
                f"{self._attempts} attempts"
            )
        )

    async def _find_chroot(self) -> None:
        if self._create_chroot:
            names = self._chroot.split("/")[1:]
            for depth in range(1, len(names) + 1):
                path = "/" + "/".join(names[:depth])
                try:
                    await self._send(path, Write((Create(path),)), _nothing)
                except NodeExistsError:
                    continue
        elif await self.exists("/") is None:
            await self.close()
            raise NoNodeError(self._chroot, "the chroot of the connect string isn't there")

    async def close(self) -> None:
        """As ``ZooKeeper.close``."""
        if self._closed:
            return
        connected = self._state is SessionState.CONNECTED
        for waiting in self._waiting:  # they stay in the queue: their answers are on the way
            waiting.completion.fail(SessionExpiredError(waiting.path))
        if not self._connected.done:
            self._connected.fail(SessionExpiredError("/", "the session was closed before it was connected"))
        self._watches.clear()
        self._listeners.clear()
        if connected:
            closing: Completion[None] = self._send("/", Write((), ends_session=True), _nothing)
            late = self.runtime.call_later(self.timeout_ms, lambda: self._fail_all(ConnectionLostError))
            try:
                await closing
            except ZooKeeperError:
                pass  # the servers will end the session when its timeout has passed
            finally:
                late.cancel()
        self._end()

    def _end(self) -> None:
        self._closed = True
        self._state = SessionState.EXPIRED
        self._leave_connection()

    # ZooKeeper: requests

    def get(self, path: str, watch: Watch | None = None) -> Completion[Node]:
        """As ``ZooKeeper.get``."""
        full = self._full(path)
        return self._read(path, lambda tree: tree.get(full), watch)

    def exists(self, path: str, watch: Watch | None = None) -> Completion[NodeStat | None]:
        """As ``ZooKeeper.exists``."""
        full = self._full(path)
        return self._read(path, lambda tree: tree.exists(full), watch)

    def children(self, path: str, watch: Watch | None = None) -> Completion[tuple[str, ...]]:
        """As ``ZooKeeper.children``."""
        full = self._full(path)
        return self._read(path, lambda tree: tree.children(full), watch, children=True)

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> Completion[str]:
        """As ``ZooKeeper.create``."""
        return self._write(Create(path, data, ephemeral, sequential))

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Completion[NodeStat]:
        """As ``ZooKeeper.set``."""
        return self._write(Set(path, data, version))

    def delete(self, path: str, version: int = ANY_VERSION) -> Completion[None]:
        """As ``ZooKeeper.delete``."""
        return self._write(Delete(path, version))

    def multi(self, operations: Sequence[Operation]) -> Completion[tuple[OperationResult, ...]]:
        """As ``ZooKeeper.multi``."""
        return self._change(operations, lambda results: tuple(map(self._relative_result, results)))

    def sync(self, path: str) -> Completion[None]:
        """As ``ZooKeeper.sync``."""
        return self._send(path, Write(()), _nothing)

    def _read(
        self, path: str, read: Callable[..., T], watch: Watch | None, *, children: bool = False
    ) -> Completion[T]:
        if watch is None:
            return self._send(path, Read(read), _itself)
        full = self._full(path)
        watching = _Watching(full, watch, children=children)

        def set_watch(table: WatchTable, connection: Connection, outcome: Outcome) -> None:
            if not isinstance(outcome, ZooKeeperError):
                (table.watch_children if children else table.watch_data)(full, connection)

        return self._send(path, Read(read, set_watch), _itself, watching)

    def _write(self, operation: Operation) -> Completion[Any]:
        return self._change((operation,), lambda results: self._relative_result(results[0]))

    def _change(self, operations: Sequence[Operation], value: Callable[[Any], T]) -> Completion[T]:
        path = operations[0].path if operations else "/"
        size = request_bytes(operations, self._chroot)
        if size > self.request_bytes_max:
            allowed = f"{self.request_bytes_max} are allowed (jute.maxbuffer)"
            reason = f"{len(operations)} operations take {size} bytes, and {allowed}"
            return self._fail_later(Completion(), TooLargeError(path, reason))
        return self._send(path, Write(tuple(map(self._full_operation, operations))), value)

    def _send(
        self, path: str, request: Request, value: Callable[[Any], T], watch: _Watching | None = None
    ) -> Completion[T]:
        waiting = _Waiting(path, request, value, watch)
        if self._state is not SessionState.CONNECTED or self._connection is None:
            expired = self._state is SessionState.EXPIRED
            return self._fail_later(
                waiting.completion, (SessionExpiredError if expired else ConnectionLostError)(path)
            )
        self._waiting.append(waiting)
        connection = self._connection
        connection.up.send(lambda: connection.take(request))
        return waiting.completion

    def _fail_later(self, completion: Completion[T], error: ZooKeeperError) -> Completion[T]:
        self.runtime.call_later(0, lambda: completion.fail(error))
        return completion

    # Paths

    def _full(self, path: str) -> str:
        return self._chroot + path if path != "/" else self._chroot or "/"

    def _relative(self, path: str) -> str:
        return path.removeprefix(self._chroot) or "/" if self._chroot else path

    def _full_operation(self, operation: Operation) -> Operation:
        return (
            msgspec.structs.replace(operation, path=self._full(operation.path)) if self._chroot else operation
        )

    def _relative_result(self, result: OperationResult) -> OperationResult:
        return self._relative(result) if isinstance(result, str) else result

    # From the servers

    def welcomed(self, connection: Connection, session_id: int) -> None:
        """A server has taken this client in."""
        if connection is not self._connection:
            return
        self._session_id = session_id
        self.heard()
        self._keep_alive()
        self._change_state(SessionState.CONNECTED)
        if not self._connected.done:
            self._connected.complete(None)

    def refused(self, connection: Connection) -> None:
        """The session is over."""
        if connection is self._connection:
            self._leave_connection()
            self._change_state(SessionState.EXPIRED)

    def heard(self) -> None:
        """The server lives."""
        self._heard_ms = self.runtime.monotonic_ms()

    def answered(self, connection: Connection, request: Request, outcome: Outcome, zxid: int) -> None:
        """An answer has come."""
        if connection is not self._connection:
            return
        self.heard()
        self._last_zxid = max(self._last_zxid, zxid)
        waiting = self._waiting.popleft()
        assert waiting.request is request
        if waiting.completion.done:
            return
        if isinstance(outcome, ZooKeeperError):
            reason = str(outcome).removeprefix(f"{outcome.path}: ")
            waiting.completion.fail(type(outcome)(self._relative(outcome.path), reason))
            return
        if waiting.watch is not None:
            self._watches.setdefault((waiting.watch.path, waiting.watch.children), []).append(waiting.watch)
        waiting.completion.complete(waiting.value(outcome))

    def watch_ended(self, connection: Connection, kind: WatchKind, path: str) -> None:
        """A watch has ended. Every callback for it is called."""
        if connection is not self._connection:
            return
        self.heard()
        ended: list[_Watching] = []
        if kind is not WatchKind.CHILDREN:
            ended += self._watches.pop((path, False), ())
        if kind in (WatchKind.CHILDREN, WatchKind.DELETED):
            ended += self._watches.pop((path, True), ())
        event = WatchEvent(kind, self._relative(path))
        for watch in ended:
            watch.callback(event)

    def dropped(self, connection: Connection) -> None:
        """The connection is gone."""
        if connection is not self._connection:
            return
        self._leave_connection()
        self._suspend()
        if not self._closed:
            self.runtime.call_later(self._ensemble.draw(RECONNECT_MS), self._connect)

    # The connection

    def _connect(self) -> None:
        if self._state is SessionState.EXPIRED or self._connection is not None:
            return
        ensemble = self._ensemble
        self._attempts += 1
        connection = ensemble.open(self.runtime.random.randrange(len(ensemble.servers)), self)
        self._connection = connection
        if self._held:
            self._hold(True)
        session_id, last_zxid = self._session_id, self._last_zxid
        connection.up.send(lambda: ensemble.greet(connection, session_id, last_zxid))
        self.runtime.call_later(self.timeout_ms / 3, lambda: self._attempt_ends(connection))

    def _attempt_ends(self, connection: Connection) -> None:
        if connection is self._connection and self._state is SessionState.SUSPENDED and not self._paused:
            self.dropped(connection)

    def _leave_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abandon()
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None

    def _keep_alive(self) -> None:
        self._tick = self.runtime.call_later(self.timeout_ms / 3, self._ping)

    def _ping(self) -> None:
        """Send a ping, and give the connection up if the last one was not answered."""
        connection = self._connection
        assert connection is not None
        if self.runtime.monotonic_ms() - self._heard_ms > self.timeout_ms / 2 and not self._paused:
            self.dropped(connection)
            return
        if not self._paused:
            connection.up.send(connection.ping)
        self._keep_alive()

    # States

    def _suspend(self) -> None:
        if self._state is SessionState.CONNECTED:
            self._change_state(SessionState.SUSPENDED)
            self._fail_all(ConnectionLostError)
            watches, self._watches = self._watches, {}
            for watch in itertools.chain.from_iterable(watches.values()):
                watch.callback(WatchEvent(WatchKind.LOST, self._relative(watch.path)))

    def _fail_all(self, error: type[ZooKeeperError]) -> None:
        failed, self._waiting = self._waiting, deque()
        for waiting in failed:
            if waiting.completion.done:
                continue
            waiting.completion.fail(error(waiting.path))

    def _change_state(self, state: SessionState) -> None:
        if state is not self._state:
            self._state = state
            for listener in list(self._listeners):
                listener(state)


def _itself(outcome: T) -> T:
    return outcome


def _nothing(_: object) -> None:
    return None
