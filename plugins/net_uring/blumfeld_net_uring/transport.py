"""The transport on the running loop's ring. Without a ring it serves on readiness."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Iterable

from blumfeld.net.connections.acceptor import Acceptor
from blumfeld.net.connections.dialled import OutboundConnection
from blumfeld.net.readiness.acceptor import ReadinessAcceptor
from blumfeld.net.readiness.sockets import connected, connection_fd_max, listening, prepare, socket_calls
from blumfeld.net.readiness.streams import ReadinessOutbound, ReadinessTurn
from blumfeld.net.transport import BaseTransport
from blumfeld.net.turn import Turn
from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.transport import ByteLayer, ConnectionHandler, FrameReceiver, Limits, Listener
from blumfeld_net_uring.io_uring.buffers import BUFFER_BYTES, BUFFERS_MAX, BufferGroup
from blumfeld_net_uring.io_uring.loop import UringLoop
from blumfeld_net_uring.io_uring.probe import Probe, probe
from blumfeld_net_uring.io_uring.ring import Ring
from blumfeld_net_uring.streams.acceptor import UringAcceptor, prepare_listening
from blumfeld_net_uring.streams.connections import outbound
from blumfeld_net_uring.streams.turn import UringTurn

READ_BYTES = 131_072
"""Bytes per read on connections that do not use the kernel's buffer group."""
GROUPS_MAX = 64
"""Maximum number of transports on one loop."""
NOT_USED = ("splice", "send bundle")
"""Features that this transport does not use: ``sendfile`` costs less than two splices in worker threads."""


class UringTransport(BaseTransport):
    """``Transport`` on the running loop's ring. Without a ring it serves on readiness and logs that.

    :param require: refuse to listen and to dial if there is no ring
    :param buffer_bytes: size of each receive buffer
    :param buffers: maximum number of receive buffers, a power of two
    :param busy_poll_us: time to look for completions before sleeping, counted from the last one
    :param copies_regions: read file regions and send the bytes, instead of ``sendfile``
    :param without: features of io_uring to leave unused, as on an older kernel
    """

    def __init__(
        self,
        runtime: Runtime,
        log: EventLog,
        *,
        require: bool = False,
        buffer_bytes: int = BUFFER_BYTES,
        buffers: int = BUFFERS_MAX,
        busy_poll_us: int = 0,
        copies_regions: bool = False,
        without: Iterable[str] = (),
    ) -> None:
        super().__init__(runtime, log)
        self._require = require
        self._buffer_bytes = buffer_bytes
        self._buffers = buffers
        self._busy_poll_us = busy_poll_us
        self._copies_regions = copies_regions
        self._probe = probe((*without, *NOT_USED))
        self.why_not = why_not(self._probe)
        """The reason why the ring cannot be used; ``None`` if it can."""

    def driver(self) -> str:
        """The mechanism that drives the sockets."""
        if self.why_not is not None:
            if self._require:
                return f"none: io_uring is required and not available: {self.why_not}"
            return f"epoll (io_uring is not available: {self.why_not})"
        busy = f", busy poll {self._busy_poll_us} µs" if self._busy_poll_us else ""
        return self._probe.describe() + busy + (", regions copied" if self._copies_regions else "")

    def make_turn(self) -> Turn:
        """See :meth:`BaseTransport.make_turn`.

        :raises OSError: the ring is required but not available
        """
        loop = asyncio.get_running_loop()
        if self.why_not is None and not isinstance(loop, UringLoop):
            self.why_not = "the loop is not the plug-in's own"
        if self.why_not is None and isinstance(loop, UringLoop):
            loop.busy_poll_us = self._busy_poll_us
            return UringTurn(
                self.runtime,
                loop.call_exception_handler,
                loop.ring,
                self._group(loop.ring) if self._probe.buffer_ring else None,
                self._probe.multishot_recv,
                READ_BYTES,
                socket_calls(self._copies_regions),
            )
        if self._require:
            raise OSError(errno.ENOSYS, f"io_uring is required and not available: {self.why_not}")
        self.log.warning("io_uring is not available: serving with epoll", reason=self.why_not)
        return ReadinessTurn(
            self.runtime, loop.call_exception_handler, loop, READ_BYTES, socket_calls(self._copies_regions)
        )

    def _group(self, ring: Ring) -> BufferGroup:
        for number in range(GROUPS_MAX):
            try:
                return BufferGroup(ring, number, self._buffer_bytes, count_max=self._buffers)
            except OSError as error:
                if error.errno != errno.EEXIST:
                    raise
        raise OSError(errno.EEXIST, f"{GROUPS_MAX} transports on one loop")

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
        if isinstance(turn, UringTurn):
            prepare_listening(sock)
            acceptor = UringAcceptor(
                turn, self.log, sock, listener, handler, limits, byte_layer, self._table, self.forget
            )
            acceptor.multishot = self._probe.multishot_accept
            acceptor.fd_max = connection_fd_max
            return acceptor
        readiness = ReadinessAcceptor(
            turn, self.log, sock, listener, handler, limits, byte_layer, self._table, self.forget
        )
        readiness.prepare = prepare
        readiness.fd_max = connection_fd_max
        return readiness

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
        if isinstance(turn, UringTurn):
            return outbound(turn, sock, receiver, limits, layer, self.forget_dialled)
        assert isinstance(turn, ReadinessTurn)
        return ReadinessOutbound(turn, sock, receiver, limits, layer, self.forget_dialled)

    async def stop(self, grace_ms: int) -> None:
        """See :meth:`BaseTransport.stop`. Afterwards the kernel uses no memory of this transport."""
        acceptors = list(self._acceptors)
        await super().stop(grace_ms)
        for acceptor in acceptors:
            if isinstance(acceptor, UringAcceptor) and acceptor.armed:
                closed: Completion[None] = Completion()
                acceptor.when_closed = lambda closed=closed: closed.complete(None)
                await closed
        turn, self._turn = self._turn, None
        if isinstance(turn, UringTurn) and turn.group is not None:
            turn.group.close()


def why_not(ring_probe: Probe) -> str | None:
    """The kernel's reason why the ring cannot be used; ``None`` if it can."""
    if ring_probe.why_not is not None:
        return ring_probe.why_not
    if not ring_probe.cancel_fd:
        return f"the io_uring of Linux {ring_probe.kernel} can't cancel all of a connection; 5.19 can"
    return None
