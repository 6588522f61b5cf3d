"""A listening socket: accepts up to a bound in each turn, within the limits, and outlives a lack of descriptors."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Callable

from blumfeld.spi.hooks import EventLog
from blumfeld.spi.runtime import Timer
from blumfeld.spi.transport import ByteLayer, ConnectionHandler, Limits, Listener
from blumfeld_net_asyncio.connection import AcceptedConnection
from blumfeld_net_asyncio.turn import Turn

EXHAUSTED_PAUSE_MS = 1000
"""How long nothing is accepted after the system ran out of what a connection needs."""
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class ConnectionTable:
    """The accepted connections of one transport, and how many each address has."""

    def __init__(self) -> None:
        self.connections: dict[int, AcceptedConnection] = {}
        self.count_of_host: dict[str, int] = {}
        self._last_id = 0

    def next_id(self) -> int:
        """An id that no connection of this transport had before."""
        self._last_id += 1
        return self._last_id

    def refusal(self, host: str, limits: Limits) -> str | None:
        """Why one more connection from ``host`` may not be, or ``None``."""
        if len(self.connections) >= limits.connections_max:
            return "max.connections"
        if self.count_of_host.get(host, 0) >= limits.connections_per_ip_max:
            return "max.connections.per.ip"
        return None

    def add(self, connection: AcceptedConnection) -> None:
        """It was accepted."""
        self.connections[connection.id] = connection
        host = connection.peer_host
        self.count_of_host[host] = self.count_of_host.get(host, 0) + 1

    def forget(self, connection: AcceptedConnection) -> None:
        """It has gone, and its handler knows."""
        del self.connections[connection.id]
        left = self.count_of_host[connection.peer_host] - 1
        if left:
            self.count_of_host[connection.peer_host] = left
        else:
            del self.count_of_host[connection.peer_host]


class ListeningSocket:
    """Accepts the connections of one listener. The socket is bound and listens when it is handed over."""

    def __init__(
        self,
        turn: Turn,
        log: EventLog,
        sock: socket.socket,
        listener: Listener,
        handler: ConnectionHandler,
        limits: Limits,
        byte_layer: Callable[[], ByteLayer] | None,
        table: ConnectionTable,
        forget: Callable[[AcceptedConnection], None],
        accepts_per_turn_max: int,
    ) -> None:
        self._turn = turn
        self._log = log
        self._socket = sock
        self._listener = listener
        self._handler = handler
        self.limits = limits
        self._byte_layer = byte_layer
        self._table = table
        self._forget = forget
        self._accepts_per_turn_max = accepts_per_turn_max
        self._pause: Timer | None = None
        self._closed = False
        self._refused = 0
        turn.readiness.add_reader(sock.fileno(), self._acceptable)

    def _acceptable(self) -> None:
        for _ in range(self._accepts_per_turn_max):
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._accept_failed(error)
                return
            self._accepted(sock, address)

    def _accept_failed(self, error: OSError) -> None:
        if error.errno not in _EXHAUSTED:
            self._log.warning("accept failed", listener=self._listener.name, error=str(error))
            return
        self._log.error(
            "no more connections are accepted for a while",
            listener=self._listener.name,
            error=str(error),
            pause_ms=EXHAUSTED_PAUSE_MS,
            connections=len(self._table.connections),
        )
        self._turn.readiness.remove_reader(self._socket.fileno())
        self._pause = self._turn.runtime.call_later(EXHAUSTED_PAUSE_MS, self._accept_again)

    def _accept_again(self) -> None:
        self._pause = None
        if not self._closed:
            self._turn.readiness.add_reader(self._socket.fileno(), self._acceptable)

    def _accepted(self, sock: socket.socket, address: tuple[str, int]) -> None:
        host, port = address[0], address[1]
        if (refusal := self._table.refusal(host, self.limits)) is not None:
            sock.close()
            self._refused += 1
            if self._refused.bit_count() == 1:  # 1, 2, 4, 8…: a flood must not flood the log
                self._log.warning(
                    "connection refused",
                    limit=refusal,
                    host=host,
                    listener=self._listener.name,
                    so_far=self._refused,
                )
            return
        prepare(sock)
        connection = AcceptedConnection(
            self._turn,
            sock,
            (host, port),
            self._table.next_id(),
            self._listener,
            self._handler,
            self.limits,
            None if self._byte_layer is None else self._byte_layer(),
            self._forget,
        )
        self._table.add(connection)
        try:
            self._handler.opened(connection)
        except Exception as error:
            self._turn.defect(error, "ConnectionHandler.opened")
            connection.abort("a defect of ours")
        connection.begin()

    def close(self) -> None:
        """Accept no more, and free the port."""
        self._closed = True
        if self._pause is not None:
            self._pause.cancel()
        else:
            self._turn.readiness.remove_reader(self._socket.fileno())
        self._socket.close()


def prepare(sock: socket.socket) -> None:
    """Options of a connected socket: no waiting for more to send, and a probe for peers that vanished."""
    sock.setblocking(False)
    with contextlib.suppress(OSError):  # the peer may have gone already: the first read will tell
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
