"""A transport without its sockets: listeners, dialled connections, one sweep for idle ones, an orderly stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from blumfeld.net.connections.accepted import AcceptedConnection
from blumfeld.net.connections.acceptor import Acceptor, ConnectionTable
from blumfeld.net.connections.dialled import OutboundConnection
from blumfeld.net.connections.stream import Stream
from blumfeld.net.memory import Memory
from blumfeld.net.turn import Turn
from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import Runtime, Timer
from blumfeld.spi.transport import ByteLayer, ConnectionHandler, FrameReceiver, Limits, Listener

SWEEPS_PER_IDLE_TIME = 8
"""A connection is closed between 1 and 1⅛ idle times after something last moved."""
SWEEP_MS_MIN = 10


class BaseTransport:
    """Implements ``Transport`` over a driver's sockets."""

    def __init__(self, runtime: Runtime, log: EventLog) -> None:
        self.runtime = runtime
        self.log = log
        self.stopped = False
        self._table = ConnectionTable()
        self._acceptors: list[Acceptor] = []
        self._repeated = RepeatedEvents(runtime)
        self._dialled: dict[OutboundConnection, Limits] = {}
        self._turn: Turn | None = None
        self._sweep_timer: Timer | None = None
        self._sweep_delay_ms = 0.0
        self._sweep_set_ms = 0.0
        """Monotonic time at which the timer was set."""
        self._stood_still_until_ms = 0.0
        """Monotonic time of the last sweep that came late: what went by before is nobody's idle time."""
        self._when_gone: Callable[[], None] | None = None

    # Filled in by a driver.

    def driver(self) -> str:
        """Returns the name of the driver, for the description of the node."""
        raise NotImplementedError

    def make_turn(self) -> Turn:
        """Make the :class:`Turn` that all connections share, on the running loop. Called once."""
        raise NotImplementedError

    async def bind(self, host: str, port: int, backlog: int) -> tuple[Any, int]:
        """Returns a listening socket and its port.

        :raises OSError: the address can't be bound
        """
        raise NotImplementedError

    def acceptor(
        self,
        turn: Turn,
        sock: Any,
        listener: Listener,
        handler: ConnectionHandler,
        limits: Limits,
        byte_layer: Callable[[], ByteLayer] | None,
    ) -> Acceptor:
        """Returns the driver's kind of acceptor on a socket of :meth:`bind`."""
        raise NotImplementedError

    async def connect(self, host: str, port: int) -> Any:
        """Returns a connected socket.

        :raises OSError: no address of the host answers
        """
        raise NotImplementedError

    def outbound(
        self, turn: Turn, sock: Any, receiver: FrameReceiver, limits: Limits, layer: ByteLayer | None
    ) -> OutboundConnection:
        """Returns the driver's kind of connection on a socket of :meth:`connect`."""
        raise NotImplementedError

    # See ``blumfeld.spi.transport.Transport``.

    def turn(self) -> Turn:
        """Returns the :class:`Turn` that all connections share.

        :raises RuntimeError: the transport was stopped
        """
        if self.stopped:
            raise RuntimeError("the transport was stopped")
        if self._turn is None:
            self._turn = self.make_turn()
            self._turn.memory.on_closed = self._closed_for_memory
            self._turn.on_refused = self._refused
        return self._turn

    async def listen(
        self,
        listener: Listener,
        handler: ConnectionHandler,
        limits: Limits,
        byte_layer: Callable[[], ByteLayer] | None = None,
    ) -> int:
        """Bind, and accept connections. Returns the port.

        :raises OSError: the message names the listener and the address
        """
        turn = self.turn()
        try:
            sock, port = await self.bind(listener.host, listener.port, limits.listen_backlog)
        except OSError as error:
            where = f"{listener.host}:{listener.port}"
            raise OSError(
                error.errno, f"listener {listener.name} cannot listen on {where}: {error.strerror}"
            ) from error
        self._bound_memory(turn, limits)
        acceptor = self.acceptor(turn, sock, listener, handler, limits, byte_layer)
        self._acceptors.append(acceptor)
        acceptor.resume()
        self._sweep_again()
        return port

    def limit(self, listener: str, limits: Limits) -> None:
        """See ``blumfeld.spi.transport.Transport``."""
        for acceptor in self._acceptors:
            if acceptor.listener.name == listener:
                acceptor.limit(limits)
                self._bound_memory(acceptor.turn, limits)

    def _bound_memory(self, turn: Turn, limits: Limits) -> None:
        turn.memory.request_bytes_max = limits.request_memory_bytes_max
        turn.memory.answer_bytes_max = limits.answer_memory_bytes_max
        turn.memory.stall_ms = limits.memory_stall_ms

    async def dial(
        self,
        host: str,
        port: int,
        receiver: FrameReceiver,
        limits: Limits,
        byte_layer: Callable[[], ByteLayer] | None = None,
    ) -> OutboundConnection:
        """Connect to the first address of the host that answers.

        :raises OSError: none does
        """
        turn = self.turn()
        sock = await self.connect(host, port)
        if self.stopped:
            sock.close()
            raise OSError("the transport was stopped")
        layer = None if byte_layer is None else byte_layer()
        connection = self.outbound(turn, sock, receiver, limits, layer)
        self._dialled[connection] = limits
        connection.begin()
        self._sweep_again()
        return connection

    @property
    def memory(self) -> Memory | None:
        """The memory of all connections; ``None`` before the transport listens or dials."""
        return None if self._turn is None else self._turn.memory

    def _closed_for_memory(self, reason: str, connection: object) -> None:
        peer = connection.peer_host if isinstance(connection, AcceptedConnection) else ""
        self._repeated.say(self.log.warning, "connection closed", (reason, peer), reason=reason, peer=peer)

    def _refused(self, reason: str, connection: AcceptedConnection) -> None:
        peer, listener = connection.peer_host, connection.listener.name
        key = ("refused", peer, listener)
        say = self._repeated.say
        say(self.log.warning, "connection closed", key, reason=reason, peer=peer, listener=listener)

    # Idle connections.

    def _sweep_again(self) -> None:
        """Set the one timer for all connections. The shortest idle time decides how often it fires."""
        limits = [acceptor.limits for acceptor in self._acceptors]
        idle_ms = [
            limit.idle_ms_max for limit in (*limits, *self._dialled.values()) if limit.idle_ms_max >= 0
        ]
        if not idle_ms or self.stopped:
            return
        delay_ms = max(min(idle_ms) / SWEEPS_PER_IDLE_TIME, SWEEP_MS_MIN)
        if self._sweep_timer is not None:
            if self._sweep_delay_ms <= delay_ms:
                return
            self._sweep_timer.cancel()
        self._sweep_delay_ms = delay_ms
        self._sweep_set_ms = self.runtime.monotonic_ms()
        self._sweep_timer = self.runtime.call_later(delay_ms, self._sweep)

    def _sweep(self) -> None:
        self._sweep_timer = None
        now_ms = self.runtime.monotonic_ms()
        # A late timer says that the loop stood still: a slow disk, a starved process. Meanwhile a peer's requests lie
        # unread, and its last answer bears the time at which the turn began. That time is not the peer's.
        if now_ms - self._sweep_set_ms > 2 * self._sweep_delay_ms:
            self._stood_still_until_ms = now_ms
        for connection in list(self._table.connections.values()):
            self._close_if_idle(connection, now_ms, connection.idle_ms_max)
        for dialled, limits in list(self._dialled.items()):
            self._close_if_idle(dialled, now_ms, limits.idle_ms_max)
        self._sweep_again()

    def _close_if_idle(self, connection: Stream, now_ms: float, idle_ms_max: float) -> None:
        """Close the connection if its peer has been idle for ``idle_ms_max``; a negative time means never."""
        since_ms = connection.idle_since()
        if since_ms is None or idle_ms_max < 0:
            return
        if now_ms - max(since_ms, self._stood_still_until_ms) >= idle_ms_max:
            connection.die(f"idle for {idle_ms_max} ms")

    # Stopping.

    async def stop(self, grace_ms: int) -> None:
        """Accept and read no more, wait up to ``grace_ms`` for open exchanges to be answered, then close everything."""
        if self.stopped:
            return
        self.stopped = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for acceptor in self._acceptors:
            acceptor.close()
        for connection in list(self._table.connections.values()):
            connection.drain("the node stops")
        await self._until(lambda: not self._table.connections, grace_ms)
        for connection in list(self._table.connections.values()):
            connection.abort("the node stops, and its grace is over")
        for dialled in list(self._dialled):
            dialled.die("the node stops")
        await self._until(lambda: not self._table.connections and not self._dialled, None)
        if self._turn is not None:
            self._turn.memory.stop()
        # A handler may still keep exchanges of connections that are gone, and those lead here.
        self._acceptors.clear()

    async def _until(self, all_gone: Callable[[], bool], grace_ms: int | None) -> None:
        """Wait until ``all_gone()``, or until the grace is over (``None``: without limit)."""
        if all_gone():
            return
        over: Completion[None] = Completion()

        def end() -> None:
            if not over.done:
                over.complete(None)

        timer = None if grace_ms is None else self.runtime.call_later(grace_ms, end)
        self._when_gone = lambda: end() if all_gone() else None
        await over
        self._when_gone = None
        if timer is not None:
            timer.cancel()

    def forget(self, connection: AcceptedConnection) -> None:
        """Drop a closed accepted connection, after its handler was told."""
        self._table.forget(connection)
        if self._when_gone is not None:
            self._when_gone()

    def forget_dialled(self, connection: OutboundConnection) -> None:
        """Drop a closed dialled connection, after its receiver was told."""
        del self._dialled[connection]
        if self._when_gone is not None:
            self._when_gone()
