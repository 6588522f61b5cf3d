"""The servers of a simulated ZooKeeper: connections, the leader's decisions, followers that lag, sessions, elections.

The leader decides each write in one step, so the write is committed at that instant or never. Servers that follow apply
it later, in order. That is what a client can see of ZooKeeper: a proposal that is lost with its leader is a write that
was never decided.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import msgspec

from blumfeld.spi.runtime import Runtime, Timer
from blumfeld.spi.zookeeper import Check, Delete, DeniedError, Operation, WatchKind, ZooKeeperError
from blumfeld_kit.fakes.znodes import Stamp, WatchTable, ZnodeTree

TICK_MS = 2_000
"""ZooKeeper's ``tickTime``. A session is expired at a whole tick."""
SYNC_TICKS = 2
"""Ticks after which a server that can't reach the others serves no more: ZooKeeper's ``syncLimit`` is 5."""
EPOCH_BITS = 32
"""A transaction's number has the leader's epoch above these bits."""
_INSTANT_MS = 1e-6


class Latencies(msgspec.Struct, kw_only=True):
    """Durations of the ensemble: each pair is a range that one is drawn from. All may change while it is used."""

    client_ms: tuple[float, float] = (0.1, 0.5)
    """A message between a client and a server, one way."""
    commit_ms: tuple[float, float] = (0.2, 2.0)
    """A write, from the client's server to its decision by the leader."""
    follow_ms: tuple[float, float] = (0.1, 1.0)
    """A decision, from the leader to a server that follows."""
    election_ms: tuple[float, float] = (200.0, 2_000.0)
    """The loss of a leader, until the next one serves."""


class Wire:
    """One direction of a connection: messages arrive in order, each after its latency."""

    def __init__(self, runtime: Runtime, latency_ms: Callable[[], float]) -> None:
        """Make an open wire.

        :param runtime: that of the end where messages arrive: if it is dead, nothing arrives
        """
        self._runtime = runtime
        self._latency_ms = latency_ms
        self._messages: deque[tuple[float, Callable[[], None]]] = deque()
        self._last_due_ms = 0.0
        self._held = False
        self._closed = False
        self._timer: Timer | None = None

    def send(self, deliver: Callable[[], None]) -> None:
        """Call ``deliver()`` at the other end, later. A closed wire loses it."""
        if self._closed:
            return
        self._last_due_ms = max(self._last_due_ms, self._runtime.monotonic_ms() + self._latency_ms())
        self._messages.append((self._last_due_ms, deliver))
        self._wait()

    def hold(self) -> None:
        """Deliver nothing until :meth:`release`. What is sent meanwhile waits."""
        self._held = True

    def release(self) -> None:
        """Deliver again."""
        self._held = False
        self._wait()

    def close(self) -> None:
        """Lose what wasn't delivered, and what is sent from now on."""
        self._closed = True
        self._messages.clear()

    def _wait(self) -> None:
        if self._messages and not self._held and self._timer is None:
            delay_ms = max(0.0, self._messages[0][0] - self._runtime.monotonic_ms())
            self._timer = self._runtime.call_later(delay_ms, self._deliver)

    def _deliver(self) -> None:
        self._timer = None
        now_ms = self._runtime.monotonic_ms() + _INSTANT_MS
        while self._messages and not self._held and self._messages[0][0] <= now_ms:
            self._messages.popleft()[1]()
        self._wait()


class Read(msgspec.Struct, frozen=True):
    """A request that a server answers from its own tree."""

    read: Callable[[ZnodeTree], object]
    watch: Callable[[WatchTable, Connection, object], None] | None = None
    """Sets the request's watch: is given the result, an error if the read failed."""


class Write(msgspec.Struct, frozen=True):
    """A request that the leader decides. One without operations is a ``sync``."""

    operations: tuple[Operation, ...]
    ends_session: bool = False


Request: TypeAlias = Read | Write
Outcome: TypeAlias = object
"""The result of a request, or the ``ZooKeeperError`` that it failed with."""


class Session:
    """One session, as the leader knows it."""

    def __init__(self, session_id: int, timeout_ms: float, auth: str, connection: Connection) -> None:
        self.id = session_id
        self.timeout_ms = timeout_ms
        self.auth = auth
        self.connection = connection
        """The connection whose requests are taken. A session that moves to another server leaves this one behind."""
        self.heard_ms = 0.0
        self.ended = False
        self.timer: Timer | None = None


class Client(Protocol):
    """The client's end of a connection, as servers see it."""

    runtime: Runtime
    timeout_ms: float
    auth: str
    slow_ms: float
    answers_to_lose: int

    def welcomed(self, connection: Connection, session_id: int) -> None:
        """A server has taken this client in."""
        ...

    def refused(self, connection: Connection) -> None:
        """The session is over."""
        ...

    def heard(self) -> None:
        """The server lives."""
        ...

    def answered(self, connection: Connection, request: Request, outcome: Outcome, zxid: int) -> None:
        """An answer has come."""
        ...

    def watch_ended(self, connection: Connection, kind: WatchKind, path: str) -> None:
        """A watch has ended."""
        ...

    def dropped(self, connection: Connection) -> None:
        """The connection is gone."""
        ...


class Connection:
    """A client's connection to one server: both ends of it, and the requests that the server holds."""

    def __init__(self, ensemble: Ensemble, server: Server, client: Client) -> None:
        latencies, draw = ensemble.latencies, ensemble.draw
        self.server = server
        self.client = client
        self.session: Session | None = None
        self.open = True
        self.up = Wire(ensemble.runtime, lambda: draw(latencies.client_ms) + client.slow_ms)
        self.down = Wire(client.runtime, lambda: draw(latencies.client_ms) + client.slow_ms)
        self._ensemble = ensemble
        self._waiting: deque[Request] = deque()
        self._forwarded: deque[Write] = deque()

    # The server's end

    def take(self, request: Request) -> None:
        """A request has arrived."""
        self.heard()
        self._waiting.append(request)
        self._work()

    def heard(self) -> None:
        """The client lives."""
        if self.session is not None and not self.server.apart:
            self.session.heard_ms = self._ensemble.runtime.monotonic_ms()

    def ping(self) -> None:
        """Answer a ping."""
        self.heard()
        self.down.send(self.client.heard)

    def decided(self, write: Write, outcome: Outcome) -> None:
        """This connection's oldest write has been decided, and the server has applied it."""
        if not self.open:
            return
        assert self._forwarded.popleft() is write
        if self.client.answers_to_lose > 0 and not write.ends_session:
            self.client.answers_to_lose -= 1
            self.close()
            return
        self._answer(write, outcome)
        if write.ends_session:
            self.close()
        self._work()

    def event(self, kind: WatchKind, path: str) -> None:
        """Send the event that ends a watch."""
        self.down.send(lambda: self.client.watch_ended(self, kind, path))

    def close(self) -> None:
        """The server closes the connection: what it has sent arrives, and what it has not read is lost."""
        if self.open:
            self.open = False
            self.up.close()
            self._waiting.clear()
            self.server.watches.forget(self)
            self.server.connections.pop(self, None)
            self.down.send(lambda: self.client.dropped(self))

    def abandon(self) -> None:
        """The client gives the connection up. A write that the server has forwarded may still take place."""
        self.down.close()
        self.up.close()
        self.up = Wire(self._ensemble.runtime, lambda: 0.0)
        self.up.send(self.close)

    def _work(self) -> None:
        while self.open and self._waiting:
            request = self._waiting[0]
            if isinstance(request, Write):
                self._waiting.popleft()
                self._forwarded.append(request)
                self._ensemble.forward(self, request)
            elif self._forwarded:
                return  # a read sees this session's writes before it
            else:
                self._waiting.popleft()
                self._answer(request, self._read(request))

    def _read(self, request: Read) -> Outcome:
        result: Outcome
        try:
            result = request.read(self.server.tree)
        except ZooKeeperError as error:
            result = error
        if request.watch is not None:
            request.watch(self.server.watches, self, result)
        return result

    def _answer(self, request: Request, outcome: Outcome) -> None:
        zxid = self.server.zxid
        self.down.send(lambda: self.client.answered(self, request, outcome, zxid))


class Entry(msgspec.Struct, frozen=True):
    """One decision of the leader, as servers apply it."""

    stamp: Stamp
    operations: tuple[Operation, ...]
    applied: Callable[[], None]
    """Is called when the server of the session that asked for it has applied it."""
    connection: Connection | None


class Server:
    """One server: its tree, which may be behind, and its connections."""

    def __init__(self, ensemble: Ensemble, number: int) -> None:
        self.number = number
        self.up = True
        self.serving = True
        self.apart = False
        """The other servers don't reach it, nor it them. It answers reads for a while, from what it has."""
        self.unsent: list[Callable[[], None]] = []
        """Messages to the leader that wait until it is reached again."""
        self.lag_ms = 0.0
        self.tree = ZnodeTree()
        self.zxid = 0
        self.watches = WatchTable()
        self.connections: dict[Connection, None] = {}
        self._ensemble = ensemble
        self.inbox = self._new_inbox()

    def follow(self, tree: ZnodeTree, zxid: int) -> None:
        """Begin to serve with this tree."""
        self.tree, self.zxid, self.serving = tree, zxid, True
        self.inbox.close()
        self.inbox = self._new_inbox()

    def leave(self) -> None:
        """Serve no more: every client loses its connection."""
        self.serving = False
        self.inbox.close()
        self.unsent.clear()
        for connection in list(self.connections):
            connection.close()

    def apply(self, entry: Entry, *, decided_here: bool = False) -> None:
        """Do what the leader decided, tell watchers, and then answer the session that asked."""
        if not decided_here:
            self.tree.change(entry.operations, entry.stamp)
        self.zxid = entry.stamp.zxid
        self.watches.changed(entry.operations)
        if entry.connection is not None and entry.connection.server is self:
            entry.applied()

    def _new_inbox(self) -> Wire:
        ensemble = self._ensemble
        return Wire(ensemble.runtime, lambda: ensemble.draw(ensemble.latencies.follow_ms) + self.lag_ms)


class Ensemble:
    """The servers together. ``zookeeper.SimulatedZooKeeper`` is what a scenario uses."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        servers: int = 1,
        latencies: Latencies | None = None,
        tick_ms: float = TICK_MS,
        request_bytes_max: int = 0xFFFFF,
    ) -> None:
        self.runtime = runtime
        self.latencies = Latencies() if latencies is None else latencies
        self.tick_ms = tick_ms
        self.request_bytes_max = request_bytes_max
        self.tree = ZnodeTree()
        """The truth: what the leader has decided. For a scenario to look at."""
        self.servers = [Server(self, number) for number in range(servers)]
        self.leader: Server | None = self.servers[0]
        self.leader.tree = self.tree
        self.writes = 0
        """Writes decided so far, refused ones too."""
        self.deciding: Callable[[int, Sequence[Operation]], None] = nobody_looks
        """Is called with the session and the operations before a write is decided. It may end the session: then the
        write doesn't take place."""
        self.decided: Callable[[Sequence[Operation], Stamp], None] = nobody_looks
        """Is called with all that a write, or the end of a session, has done to the tree, before any server
        tells of it. It writes nothing itself."""
        self._protected: dict[str, str] = {}
        self._zxid = 1 << EPOCH_BITS
        self._sessions: dict[int, Session] = {}
        self._to_leader = self._new_leader_wire()

    # Faults. Those of one client are methods of its session.

    def stop_server(self, number: int) -> None:
        """Kill a server. Without a majority, or without its leader, the ensemble serves nobody for a while."""
        server = self.servers[number]
        server.up = False
        server.leave()
        if server is self.leader or not self._has_majority():
            self.lose_leader()

    def start_server(self, number: int) -> None:
        """Start a server that was stopped."""
        server = self.servers[number]
        server.up = True
        if self.leader is None:
            self._begin_election()
        elif not server.serving:
            server.follow(self.tree.copy(), self._zxid)

    def stop_all(self) -> None:
        """Kill every server."""
        for server in self.servers:
            self.stop_server(server.number)

    def start_all(self) -> None:
        """Start every server."""
        for server in self.servers:
            if not server.up:
                self.start_server(server.number)

    def lose_leader(self) -> None:
        """The leader leads no more, though its process may live: every connection goes, writes on their way are lost,
        and the servers elect another. Sessions have their whole timeout again from the election."""
        self.leader = None
        self._to_leader.close()
        for server in self.servers:
            server.leave()
        self._begin_election()

    def part(self, number: int) -> None:
        """Cut a server off from the others until :meth:`join`. If that lasts, it serves no more, and a leader leads no
        more."""
        server = self.servers[number]
        if server.apart or not server.up:
            return
        server.apart = True
        server.inbox.hold()
        if server is self.leader:
            self._to_leader.hold()
        self.runtime.call_later(SYNC_TICKS * self.tick_ms, lambda: self._give_up(server))

    def join(self, number: int) -> None:
        """End :meth:`part`. What waited goes on, unless the server has given up meanwhile."""
        server = self.servers[number]
        if not server.apart:
            return
        server.apart = False
        if server is self.leader:
            self._to_leader.release()
        elif not server.serving:
            self.start_server(number)
            return
        server.inbox.release()
        waiting, server.unsent = server.unsent, []
        for message in waiting:
            self._to_leader.send(message)

    def _give_up(self, server: Server) -> None:
        """A server that is still cut off serves nobody, and is elected by nobody."""
        if server.apart and server.serving:
            self.stop_server(server.number)

    def hang(self, ms: float) -> None:
        """Decide no write for ``ms``. Reads and pings are answered."""
        wire = self._to_leader
        wire.hold()
        self.runtime.call_later(ms, wire.release)

    def lag(self, number: int, ms: float) -> None:
        """Let a server that follows learn of decisions ``ms`` later, from now on."""
        self.servers[number].lag_ms = ms

    def expire(self, session_id: int) -> None:
        """End a session now, as if its timeout had passed. There must be a leader."""
        assert self.leader is not None
        self._end(self._sessions[session_id])

    def by_hand(self, *operations: Operation) -> None:
        """Write as somebody else does, at once. There must be a leader.

        :raises ZooKeeperError: the first operation that can't be done
        """
        assert self.leader is not None
        stamp = self._stamp(0)
        done, _ = self.tree.change(operations, stamp)
        self._commit(Entry(stamp, tuple(done), nobody_looks, None))

    def protect(self, path: str, auth: str) -> None:
        """Let only sessions with this name write at or below ``path``."""
        self._protected[path] = auth

    def is_alive(self, session_id: int) -> bool:
        """Return whether the session hasn't ended."""
        return session_id in self._sessions

    # Used by connections

    def draw(self, bounds: tuple[float, float]) -> float:
        """Draw a duration."""
        low, high = bounds
        return low + (high - low) * self.runtime.random.random()

    def open(self, number: int, client: Client) -> Connection:
        """Open a connection to a server, which may refuse it."""
        server = self.servers[number]
        connection = Connection(self, server, client)
        server.connections[connection] = None
        return connection

    def greet(self, connection: Connection, session_id: int, last_zxid: int) -> None:
        """A client has connected: to begin a session, or to go on with one."""
        server = connection.server
        # A client that has seen more than this server is sent away, so nobody's reads go back in time.
        if not server.serving or last_zxid > server.zxid or not connection.open:
            connection.close()
        elif session_id == 0:
            self._tell_leader(server, lambda: self._begin_session(connection))
        else:
            self._tell_leader(server, lambda: self._move_session(connection, session_id))

    def forward(self, connection: Connection, write: Write) -> None:
        """Bring a write to the leader."""
        self._tell_leader(connection.server, lambda: self._decide(connection, write))

    def _tell_leader(self, server: Server, message: Callable[[], None]) -> None:
        if server.apart and server is not self.leader:
            server.unsent.append(message)
        else:
            self._to_leader.send(message)

    # The leader

    def _begin_session(self, connection: Connection) -> None:
        client = connection.client
        stamp = self._stamp(0)
        session = Session(
            stamp.zxid << 8 | connection.server.number, client.timeout_ms, client.auth, connection
        )
        self._sessions[session.id] = session

        def welcome() -> None:
            connection.session = session
            connection.down.send(lambda: client.welcomed(connection, session.id))

        self._touch(session)
        self._commit(Entry(stamp, (), welcome, connection))

    def _move_session(self, connection: Connection, session_id: int) -> None:
        session = self._sessions.get(session_id)
        if session is None:
            connection.down.send(lambda: connection.client.refused(connection))
            return
        if session.connection is not connection:
            session.connection.close()
        session.connection = connection
        connection.session = session
        connection.heard()
        connection.down.send(lambda: connection.client.welcomed(connection, session_id))

    def _decide(self, connection: Connection, write: Write) -> None:
        session = connection.session
        assert session is not None
        if session.ended or session.connection is not connection:
            return
        if write.ends_session:
            self._end(session, write)
            return
        self.deciding(session.id, write.operations)
        if session.ended:
            return
        self.writes += 1
        stamp = self._stamp(session.id)
        done: Sequence[Operation] = ()
        outcome: Outcome
        try:
            self._check_access(session, write.operations)
            done, outcome = self.tree.change(write.operations, stamp)
        except ZooKeeperError as error:
            outcome = error
        self._commit(Entry(stamp, tuple(done), lambda: connection.decided(write, outcome), connection))

    def _check_access(self, session: Session, operations: Sequence[Operation]) -> None:
        for operation in operations:
            for path, auth in self._protected.items():
                below = f"{operation.path}/".startswith(f"{path.rstrip('/')}/")
                if below and auth != session.auth and not isinstance(operation, Check):
                    raise DeniedError(operation.path, f"{path} belongs to {auth!r}")

    def _commit(self, entry: Entry) -> None:
        if entry.operations:
            self.decided(entry.operations, entry.stamp)
        for server in self.servers:
            if server is self.leader:
                server.apply(entry, decided_here=True)
            elif server.serving:
                server.inbox.send(lambda server=server: server.apply(entry))  # type: ignore[misc]

    def _stamp(self, session_id: int) -> Stamp:
        self._zxid += 1
        return Stamp(self._zxid, session_id, self.runtime.now_ms())

    def _new_leader_wire(self) -> Wire:
        return Wire(self.runtime, lambda: self.draw(self.latencies.commit_ms))

    # Sessions

    def _touch(self, session: Session) -> None:
        session.heard_ms = self.runtime.monotonic_ms()
        if session.timer is not None:
            session.timer.cancel()
        self._watch_over(session)

    def _watch_over(self, session: Session) -> None:
        """Look again when the session's timeout has passed, at a whole tick."""
        ticks = (session.heard_ms + session.timeout_ms) // self.tick_ms + 1
        delay_ms = ticks * self.tick_ms - self.runtime.monotonic_ms()
        session.timer = self.runtime.call_later(max(delay_ms, _INSTANT_MS), lambda: self._look_at(session))

    def _look_at(self, session: Session) -> None:
        session.timer = None
        if session.ended or self.leader is None:
            return
        if session.heard_ms + session.timeout_ms <= self.runtime.monotonic_ms():
            self._end(session)
        else:
            self._watch_over(session)

    def _end(self, session: Session, write: Write | None = None) -> None:
        """Remove a session with its ephemeral nodes: one transaction, in an order that nobody may rely on."""
        session.ended = True
        del self._sessions[session.id]
        if session.timer is not None:
            session.timer.cancel()
        connection, stamp = session.connection, self._stamp(session.id)
        paths = self.tree.owned_by(session.id)
        for place in range(len(paths) - 1, 0, -1):
            other = self.runtime.random.randrange(place + 1)
            paths[place], paths[other] = paths[other], paths[place]
        done, _ = self.tree.change([Delete(path) for path in paths], stamp)
        over = connection.close if write is None else lambda: connection.decided(write, None)
        self._commit(Entry(stamp, tuple(done), over, connection))

    # Elections

    def _has_majority(self) -> bool:
        return len(self._reached()) > len(self.servers) // 2

    def _reached(self) -> list[Server]:
        return [server for server in self.servers if server.up and not server.apart]

    def _begin_election(self) -> None:
        if self._has_majority():
            self.runtime.call_later(self.draw(self.latencies.election_ms), self._elect)

    def _elect(self) -> None:
        if self.leader is not None or not self._has_majority():
            return
        alive = self._reached()
        self.leader = alive[self.runtime.random.randrange(len(alive))]
        self._zxid = (self._zxid >> EPOCH_BITS) + 1 << EPOCH_BITS
        self._to_leader = self._new_leader_wire()
        for server in alive:
            server.follow(self.tree if server is self.leader else self.tree.copy(), self._zxid)
        for session in self._sessions.values():
            self._touch(session)


def nobody_looks(*_: object) -> None:
    """Do nothing: for a callback, such as :attr:`Ensemble.decided`, that no test asked for."""
