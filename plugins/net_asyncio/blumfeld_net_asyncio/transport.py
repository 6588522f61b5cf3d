"""The transport on readiness: sockets that listen, sockets that connect, and the turn of the running loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from blumfeld.net.connections.acceptor import Acceptor
from blumfeld.net.connections.dialled import OutboundConnection
from blumfeld.net.readiness.acceptor import ReadinessAcceptor
from blumfeld.net.readiness.sockets import connected, connection_fd_max, listening, prepare, socket_calls
from blumfeld.net.readiness.streams import ReadinessOutbound, ReadinessTurn
from blumfeld.net.transport import BaseTransport
from blumfeld.net.turn import Turn
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.transport import ByteLayer, ConnectionHandler, FrameReceiver, Limits, Listener
from blumfeld_net_asyncio.readiness import TurnLoop, readiness_of


class AsyncioTransport(BaseTransport):
    """``Transport`` on the readiness events of the running loop.

    :param read_bytes: at most that much is taken from one connection in a turn, large frames excepted
    :param busy_poll_us: how long to poll without waiting after something last happened
    :param copies_regions: read file regions and send what was read, instead of ``sendfile``
    """

    def __init__(
        self,
        runtime: Runtime,
        log: EventLog,
        read_bytes: int,
        accepts_per_turn_max: int,
        busy_poll_us: int = 0,
        *,
        copies_regions: bool = False,
    ) -> None:
        super().__init__(runtime, log)
        self._read_bytes = read_bytes
        self._accepts_per_turn_max = accepts_per_turn_max
        self._busy_poll_us = busy_poll_us
        self._copies_regions = copies_regions

    def driver(self) -> str:
        """The mechanism that drives the sockets, in words."""
        busy = f", busy poll {self._busy_poll_us} µs" if self._busy_poll_us else ""
        return "epoll" + busy + (", regions copied" if self._copies_regions else "")

    def make_turn(self) -> ReadinessTurn:
        """See :meth:`BaseTransport.make_turn`."""
        loop = asyncio.get_running_loop()
        if isinstance(loop, TurnLoop):
            loop.readiness.busy_poll_us = self._busy_poll_us
        return ReadinessTurn(
            self.runtime,
            loop.call_exception_handler,
            readiness_of(loop),
            self._read_bytes,
            socket_calls(self._copies_regions),
        )

    async def bind(self, host: str, port: int, backlog: int) -> tuple[socket.socket, int]:
        """See :meth:`BaseTransport.bind`."""
        return await listening(self.runtime, host, port, backlog)

    def acceptor(
        self,
        turn: Turn,
        sock: socket.socket,
        listener: Listener,
        handler: ConnectionHandler,
        limits: Limits,
        byte_layer: Callable[[], ByteLayer] | None,
    ) -> Acceptor:
        """See :meth:`BaseTransport.acceptor`."""
        acceptor = ReadinessAcceptor(
            turn, self.log, sock, listener, handler, limits, byte_layer, self._table, self.forget
        )
        acceptor.prepare = prepare
        acceptor.fd_max = connection_fd_max
        acceptor.accepts_per_turn_max = self._accepts_per_turn_max
        return acceptor

    async def connect(self, host: str, port: int) -> socket.socket:
        """See :meth:`BaseTransport.connect`."""
        return await connected(self.runtime, host, port)

    def outbound(
        self,
        turn: Turn,
        sock: socket.socket,
        receiver: FrameReceiver,
        limits: Limits,
        layer: ByteLayer | None,
    ) -> OutboundConnection:
        """See :meth:`BaseTransport.outbound`."""
        assert isinstance(turn, ReadinessTurn)
        return ReadinessOutbound(turn, sock, receiver, limits, layer, self.forget_dialled)
