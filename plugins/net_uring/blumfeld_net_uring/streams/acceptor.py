"""A listening socket on the ring: with multishot one entry accepts all connections."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Callable

from blumfeld.net.connections.accepted import AcceptedConnection
from blumfeld.net.connections.acceptor import Acceptor
from blumfeld.spi.transport import ByteLayer
from blumfeld_net_uring.io_uring import abi
from blumfeld_net_uring.io_uring.ring import IGNORED
from blumfeld_net_uring.streams.connections import accepted
from blumfeld_net_uring.streams.send_queue import error_of
from blumfeld_net_uring.streams.turn import UringTurn

_PASSING = (-errno.ECANCELED, -errno.EAGAIN, -errno.EINTR, -errno.ECONNABORTED)


class UringAcceptor(Acceptor):
    """Accepts the connections of one listener. The socket must already be bound and listening."""

    turn: UringTurn
    sock: socket.socket
    multishot: bool = False
    when_closed: Callable[[], None] | None = None
    """Called when the last entry has completed after :meth:`close`: the port is free then."""
    _token: int = 0
    _wanted: bool = False
    _cancelled: bool = False
    armed: bool = False
    """Whether an accepting entry is in flight."""

    def resume(self) -> None:
        """See :meth:`Acceptor.resume`."""
        if not self._token:
            self._token = self.turn.ring.attach(self._acceptable)
        self._wanted = True
        if not self.armed:
            self._arm()

    def pause(self) -> None:
        """See :meth:`Acceptor.pause`."""
        self._wanted = False
        if self.armed and not self._cancelled:
            self._cancelled = True
            self.turn.ring.cancel(IGNORED, self._token)

    def close(self) -> None:
        """See :meth:`Acceptor.close`. A paused acceptor has no entry in flight whose completion would finish
        the close.
        """
        super().close()
        if self._token and not self.armed:
            self.turn.ring.detach(self._token)
            self._token = 0

    def _arm(self) -> None:
        self.armed = True
        flags = socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        # With multishot the kernel accepts the whole backlog before we can pause.
        multishot = self.multishot and not self.rate_limited
        self.turn.ring.accept(self._token, self.sock.fileno(), flags, multishot)

    def _acceptable(self, result: int, flags: int) -> None:
        if not flags & abi.CQE_F_MORE:
            self.armed = self._cancelled = False
        if result >= 0:
            self._came(result)
        elif result not in _PASSING:
            self.accept_failed(error_of(result))
        if self.armed:
            return
        if self._wanted:
            self._arm()
        elif self.closed:
            self.turn.ring.detach(self._token)
            if self.when_closed is not None:
                self.when_closed()

    def _came(self, fd: int) -> None:
        if self.closed:
            os.close(fd)
            return
        sock = socket.socket(self.sock.family, socket.SOCK_STREAM, 0, fileno=fd)
        try:
            address = sock.getpeername()
        except OSError:  # the peer has gone already
            sock.close()
            return
        self.accepted(sock, address[0], address[1])

    def connection(
        self, sock: socket.socket, peer: tuple[str, int], identity: int, layer: ByteLayer | None
    ) -> AcceptedConnection:
        """See :meth:`Acceptor.connection`. The socket inherits its options from the listening socket."""
        return accepted(
            self.turn, sock, peer, identity, self.listener, self.handler, self.limits, layer, self.forget
        )


def prepare_listening(sock: socket.socket) -> None:
    """Set options that accepted sockets inherit. Entries on a blocking listening socket wait in the ring."""
    sock.setblocking(True)
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
