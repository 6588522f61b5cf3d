"""Accepts connections on readiness, up to a bound in each turn, so that a flood doesn't starve the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from blumfeld.net.connections.accepted import AcceptedConnection
from blumfeld.net.connections.acceptor import Acceptor
from blumfeld.net.readiness.streams import ReadinessAccepted, ReadinessTurn
from blumfeld.spi.transport import ByteLayer


class ReadinessAcceptor(Acceptor):
    """Accepts the connections of one listener. Its socket is already bound and listens."""

    turn: ReadinessTurn
    sock: Any
    prepare: Callable[[Any], None]
    """Sets the options of an accepted socket."""
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
            if self.paused:
                return

    def connection(
        self, sock: Any, peer: tuple[str, int], identity: int, layer: ByteLayer | None
    ) -> AcceptedConnection:
        """See :meth:`Acceptor.connection`."""
        self.prepare(sock)
        return ReadinessAccepted(
            self.turn, sock, peer, identity, self.listener, self.handler, self.limits, layer, self.forget
        )
