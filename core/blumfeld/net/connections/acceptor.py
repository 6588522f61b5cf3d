"""Accepts connections: within the limits, counted by address, with a pause when descriptors run out."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any, Protocol

from blumfeld.net.connections.accepted import AcceptedConnection
from blumfeld.net.connections.creation_rate import CreationRate
from blumfeld.net.turn import Turn
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import Timer
from blumfeld.spi.transport import ByteLayer, ConnectionHandler, Limits, Listener

NO_RATE = 2**31 - 1
"""The configured value that means "no limit"."""
RATE_LOOK_MS = 1_000
"""Longest pause of an acceptor because of its rate. Afterwards it checks again: the limit may have been changed."""
EXHAUSTED_PAUSE_MS = 1000
"""Pause of an acceptor after the system ran out of descriptors or memory."""
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Closable(Protocol):
    """The methods that an acceptor needs of a socket."""

    def fileno(self) -> int:
        """Returns the descriptor."""
        ...

    def close(self) -> None:
        """Give the descriptor back."""
        ...


class ConnectionTable:
    """The accepted connections of one transport, with their numbers by address and by listener."""

    def __init__(self) -> None:
        self.connections: dict[int, AcceptedConnection] = {}
        self.count_of_host: dict[str, int] = {}
        self.count_of_listener: dict[str, int] = {}
        self.listeners = 0
        self.rate: CreationRate | None = None
        """Rate of new connections on all listeners together; ``None`` for no limit."""
        self._last_id = 0

    def next_id(self) -> int:
        """Returns an id that no connection of this transport had before."""
        self._last_id += 1
        return self._last_id

    def refusal(self, host: str, listener: str, limits: Limits) -> str | None:
        """Returns the config key of the limit that one more connection from ``host`` would exceed, or ``None``."""
        if len(self.connections) >= limits.connections_max:
            return "max.connections"
        if self.count_of_listener.get(listener, 0) >= limits.listener_connections_max:
            return f"listener.name.{listener.lower()}.max.connections"
        own_max = limits.connections_per_ip_overrides.get(host)
        if own_max is not None:
            full = self.count_of_host.get(host, 0) >= own_max
            return "max.connections.per.ip.overrides" if full else None
        if self.count_of_host.get(host, 0) >= limits.connections_per_ip_max:
            return "max.connections.per.ip"
        return None

    def add(self, connection: AcceptedConnection) -> None:
        """Count an accepted connection."""
        self.connections[connection.id] = connection
        host = connection.peer_host
        self.count_of_host[host] = self.count_of_host.get(host, 0) + 1
        listener = connection.listener.name
        self.count_of_listener[listener] = self.count_of_listener.get(listener, 0) + 1

    def forget(self, connection: AcceptedConnection) -> None:
        """Drop a closed connection, after its handler was told."""
        del self.connections[connection.id]
        self.count_of_listener[connection.listener.name] -= 1
        left = self.count_of_host[connection.peer_host] - 1
        if left:
            self.count_of_host[connection.peer_host] = left
        else:
            del self.count_of_host[connection.peer_host]


class Acceptor:
    """Accepts the connections of one listener. A driver reports them, and makes its kind of connection."""

    def __init__(
        self,
        turn: Turn,
        log: EventLog,
        sock: Closable,
        listener: Listener,
        handler: ConnectionHandler,
        limits: Limits,
        byte_layer: Callable[[], ByteLayer] | None,
        table: ConnectionTable,
        forget: Callable[[AcceptedConnection], None],
    ) -> None:
        self.turn = turn
        self.sock = sock
        self.listener = listener
        self.handler = handler
        self.limits = limits
        self.forget = forget
        self.closed = False
        self._log = log
        self._byte_layer = byte_layer
        self._table = table
        self._pause: Timer | None = None
        self._refusals = RepeatedEvents(turn.runtime)
        self._rate: CreationRate | None = None
        table.listeners += 1
        self.limit(limits)

    # Filled in by a driver.

    fd_max: Callable[[], int] = staticmethod(lambda: 2**31 - 1)
    """Returns the highest descriptor that a connection may have. The rest is reserved for files: a log that can't open
    a file is offline. The system always gives the lowest free descriptor, so a higher one means that few are left.
    """

    def resume(self) -> None:
        """Accept connections from now on."""
        raise NotImplementedError

    def pause(self) -> None:
        """Accept nothing from now on: new connections wait in the backlog."""
        raise NotImplementedError

    def connection(
        self, sock: Any, peer: tuple[str, int], identity: int, layer: ByteLayer | None
    ) -> AcceptedConnection:
        """Returns the driver's kind of connection on an accepted socket."""
        raise NotImplementedError

    def limit(self, limits: Limits) -> None:
        """Use other limits from now on."""
        self.limits = limits
        self._rate = self._limited(self._rate, limits.listener_connections_per_s_max)
        self._table.rate = self._limited(self._table.rate, limits.connections_per_s_max)

    def _limited(self, rate: CreationRate | None, connections_per_s: int) -> CreationRate | None:
        if connections_per_s == NO_RATE:
            return None
        now_ms = self.turn.runtime.monotonic_ms()
        if rate is None:
            return CreationRate(connections_per_s, now_ms)
        rate.limit(connections_per_s, now_ms)
        return rate

    # Called by a driver.

    def accept_failed(self, error: OSError) -> None:
        """Report a failed accept. If the system ran out of descriptors or memory, pause: a retry at once would fail and
        fill the loop."""
        if error.errno not in _EXHAUSTED:
            self._log.warning("accept failed", listener=self.listener.name, error=str(error))
            return
        self._log.error(
            "no more connections are accepted for a while",
            listener=self.listener.name,
            error=str(error),
            pause_ms=EXHAUSTED_PAUSE_MS,
            connections=len(self._table.connections),
        )
        self._pause_for(EXHAUSTED_PAUSE_MS)

    @property
    def rate_limited(self) -> bool:
        """Whether a rate limit holds. Then connections must be accepted one by one, because each may start a pause."""
        return self._rate is not None or self._table.rate is not None

    @property
    def paused(self) -> bool:
        """Whether new connections wait in the backlog."""
        return self._pause is not None

    def _pause_for(self, pause_ms: float) -> None:
        if self._pause is None:
            self.pause()
            self._pause = self.turn.runtime.call_later(pause_ms, self._accept_again)

    def _accept_again(self) -> None:
        self._pause = None
        if self.closed:
            return
        wait_ms = self._wait_ms(count=False)
        if wait_ms:
            self._pause = self.turn.runtime.call_later(min(wait_ms, RATE_LOOK_MS), self._accept_again)
        else:
            self.resume()

    def _wait_ms(self, *, count: bool) -> float:
        """Returns the time that the next connection must wait for the rate limits.

        :param count: count a connection that was accepted just now
        """
        now_ms = self.turn.runtime.monotonic_ms()
        # Clients must not keep brokers from each other: Kafka's "protected listener".
        is_exempt = self.listener.inter_broker and self._table.listeners > 1
        wait_ms = 0.0
        for rate in (self._rate, None if is_exempt else self._table.rate):
            if rate is not None:
                if count:
                    rate.took(now_ms)
                wait_ms = max(wait_ms, rate.wait_ms(now_ms))
        return wait_ms

    def accepted(self, sock: Closable, host: str, port: int) -> None:
        """Refuse a new connection, or let it begin. It counts for the rate limits in both cases, as in Kafka."""
        if self.rate_limited:
            wait_ms = self._wait_ms(count=True)
            if wait_ms:
                self._pause_for(min(wait_ms, RATE_LOOK_MS))
        refusal = self._table.refusal(host, self.listener.name, self.limits)
        if refusal is None and sock.fileno() > self.fd_max():
            refusal = "descriptors (RLIMIT_NOFILE)"
        if refusal is not None:
            sock.close()
            self._refusals.say(
                self._log.warning,
                "connection refused",
                (host, refusal),
                limit=refusal,
                host=host,
                listener=self.listener.name,
            )
            return
        layer = None if self._byte_layer is None else self._byte_layer()
        connection = self.connection(sock, (host, port), self._table.next_id(), layer)
        self._table.add(connection)
        try:
            self.handler.opened(connection)
        except Exception as error:
            self.turn.defect(error, "ConnectionHandler.opened")
            connection.abort("a defect of ours")
        if not connection.dead:
            connection.begin()

    def close(self) -> None:
        """Accept no more, and free the port."""
        self.closed = True
        if self._pause is not None:
            self._pause.cancel()
        else:
            self.pause()
        self.sock.close()
