"""Accepting connections: within the limits, counted by address, and again after a lack of descriptors."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any, Protocol

from blumfeld.net.accepted import AcceptedConnection
from blumfeld.net.turn import Turn
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import Timer
from blumfeld.spi.transport import ByteLayer, ConnectionHandler, Limits, Listener

EXHAUSTED_PAUSE_MS = 1000
"""How long nothing is accepted after the system ran out of what a connection needs."""
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Closable(Protocol):
    """A socket, as far as this room knows one."""

    def fileno(self) -> int:
        """The descriptor."""
        ...

    def close(self) -> None:
        """Give the descriptor back."""
        ...


class ConnectionTable:
    """The accepted connections of one transport, and how many each address has."""

    def __init__(self) -> None:
        self.connections: dict[int, AcceptedConnection] = {}
        self.count_of_host: dict[str, int] = {}
        self.count_of_listener: dict[str, int] = {}
        self._last_id = 0

    def next_id(self) -> int:
        """An id that no connection of this transport had before."""
        self._last_id += 1
        return self._last_id

    def refusal(self, host: str, listener: str, limits: Limits) -> str | None:
        """The key of the limit that one more connection from ``host`` to a listener would go past, or ``None``."""
        if len(self.connections) >= limits.connections_max:
            return "max.connections"
        if self.count_of_listener.get(listener, 0) >= limits.listener_connections_max:
            return f"listener.name.{listener.lower()}.max.connections"
        if self.count_of_host.get(host, 0) >= limits.connections_per_ip_max:
            return "max.connections.per.ip"
        return None

    def add(self, connection: AcceptedConnection) -> None:
        """It was accepted."""
        self.connections[connection.id] = connection
        host = connection.peer_host
        self.count_of_host[host] = self.count_of_host.get(host, 0) + 1
        listener = connection.listener.name
        self.count_of_listener[listener] = self.count_of_listener.get(listener, 0) + 1

    def forget(self, connection: AcceptedConnection) -> None:
        """It has gone, and its handler knows."""
        del self.connections[connection.id]
        self.count_of_listener[connection.listener.name] -= 1
        left = self.count_of_host[connection.peer_host] - 1
        if left:
            self.count_of_host[connection.peer_host] = left
        else:
            del self.count_of_host[connection.peer_host]


class Acceptor:
    """One listener's door. A driver says when somebody knocks, and makes its kind of connection."""

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

    # What a driver fills in.

    fd_max: Callable[[], int] = staticmethod(lambda: 2**31 - 1)
    """The highest descriptor that a connection may have. The system gives the lowest that is free, so one above it
    means that hardly any is left, and a log that could open no file would be unusable from then on.
    """

    def resume(self) -> None:
        """Accept from now on."""
        raise NotImplementedError

    def pause(self) -> None:
        """Leave who comes in the backlog."""
        raise NotImplementedError

    def connection(
        self, sock: Any, peer: tuple[str, int], identity: int, layer: ByteLayer | None
    ) -> AcceptedConnection:
        """The driver's kind of connection on an accepted socket."""
        raise NotImplementedError

    # What a driver calls.

    def accept_failed(self, error: OSError) -> None:
        """Nobody could be accepted: if the system has run out of something, wait a while."""
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
        self.pause()
        self._pause = self.turn.runtime.call_later(EXHAUSTED_PAUSE_MS, self._accept_again)

    def _accept_again(self) -> None:
        self._pause = None
        if not self.closed:
            self.resume()

    def accepted(self, sock: Closable, host: str, port: int) -> None:
        """A connection came: refuse it, or let it begin."""
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
