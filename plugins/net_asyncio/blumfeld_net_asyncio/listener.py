"""A listening socket on readiness: accepts up to a bound in each turn."""

from __future__ import annotations

import contextlib
import socket

from blumfeld.net.accepted import AcceptedConnection
from blumfeld.net.accepting import Acceptor
from blumfeld.spi.transport import ByteLayer
from blumfeld_net_asyncio.stream import ReadinessAccepted, ReadinessTurn


class ReadinessAcceptor(Acceptor):
    """Accepts the connections of one listener. The socket is bound and listens when it is handed over."""

    turn: ReadinessTurn
    sock: socket.socket
    accepts_per_turn_max: int = 64

    def resume(self) -> None:
        """See :meth:`Acceptor.resume`."""
        self.turn.readiness.add_reader(self.sock.fileno(), self._acceptable)

    def pause(self) -> None:
        """See :meth:`Acceptor.pause`."""
        self.turn.readiness.remove_reader(self.sock.fileno())

    def _acceptable(self) -> None:
        for _ in range(self.accepts_per_turn_max):
            try:
                sock, address = self.sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self.accept_failed(error)
                return
            self.accepted(sock, address[0], address[1])

    def connection(
        self, sock: socket.socket, peer: tuple[str, int], identity: int, layer: ByteLayer | None
    ) -> AcceptedConnection:
        """See :meth:`Acceptor.connection`."""
        prepare(sock)
        return ReadinessAccepted(
            self.turn, sock, peer, identity, self.listener, self.handler, self.limits, layer, self.forget
        )


def prepare(sock: socket.socket) -> None:
    """Options of a connected socket: no waiting for more to send, and a probe for peers that vanished."""
    sock.setblocking(False)
    with contextlib.suppress(OSError):  # the peer may have gone already: the first read will tell
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
