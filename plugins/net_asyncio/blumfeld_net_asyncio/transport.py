"""The transport: what is listened on, what was dialled, one sweep for the idle, and an orderly stop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from blumfeld.spi.hooks import EventLog
from blumfeld.spi.runtime import Runtime, Timer
from blumfeld.spi.transport import ByteLayer, ConnectionHandler, FrameReceiver, Limits, Listener
from blumfeld_net_asyncio.address import Address, resolve
from blumfeld_net_asyncio.connection import AcceptedConnection
from blumfeld_net_asyncio.dialled import OutboundConnection
from blumfeld_net_asyncio.listener import ConnectionTable, ListeningSocket, prepare
from blumfeld_net_asyncio.stream import Stream
from blumfeld_net_asyncio.turn import Turn

SWEEPS_PER_IDLE_TIME = 8
"""A connection is closed between 1 and 1⅛ idle times after something last moved."""
SWEEP_MS_MIN = 10


class AsyncioTransport:
    """``Transport`` on the readiness events of the running loop.

    :param read_bytes: at most that much is taken from one connection in a turn, large frames excepted
    """

    def __init__(self, runtime: Runtime, log: EventLog, read_bytes: int, accepts_per_turn_max: int) -> None:
        self._runtime = runtime
        self._log = log
        self._read_bytes = read_bytes
        self._accepts_per_turn_max = accepts_per_turn_max
        self._turn: Turn | None = None
        self._table = ConnectionTable()
        self._listening: list[ListeningSocket] = []
        self._dialled: dict[OutboundConnection, Limits] = {}
        self._sweep_timer: Timer | None = None
        self._sweep_delay_ms = 0.0
        self._when_gone: Callable[[], None] | None = None
        self._stopped = False

    def driver(self) -> str:
        """What drives the sockets."""
        return "epoll"

    def _turn_of_loop(self) -> Turn:
        if self._stopped:
            raise RuntimeError("the transport was stopped")
        if self._turn is None:
            self._turn = Turn(self._runtime, asyncio.get_running_loop(), self._read_bytes)
        return self._turn

    async def listen(
        self,
        listener: Listener,
        handler: ConnectionHandler,
        limits: Limits,
        byte_layer: Callable[[], ByteLayer] | None = None,
    ) -> int:
        """Bind and accept; the port that was bound.

        :raises OSError: the message names the listener and the address
        """
        turn = self._turn_of_loop()
        try:
            addresses = await resolve(self._runtime, listener.host, listener.port, passive=True)
            sock = bind(addresses[0], limits.listen_backlog)
        except OSError as error:
            where = f"{listener.host}:{listener.port}"
            raise OSError(
                error.errno, f"listener {listener.name} cannot listen on {where}: {error.strerror}"
            ) from error
        self._listening.append(
            ListeningSocket(
                turn,
                self._log,
                sock,
                listener,
                handler,
                limits,
                byte_layer,
                self._table,
                self._forget,
                self._accepts_per_turn_max,
            )
        )
        self._sweep_again()
        port: int = sock.getsockname()[1]
        return port

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
        turn = self._turn_of_loop()
        failure: OSError | None = None
        for address in await resolve(self._runtime, host, port, passive=False):
            try:
                sock = await connect(turn.loop, address)
            except OSError as error:
                failure = error
                continue
            if self._stopped:
                sock.close()
                raise OSError("the transport was stopped")
            layer = None if byte_layer is None else byte_layer()
            connection = OutboundConnection(turn, sock, receiver, limits, layer, self._forget_dialled)
            self._dialled[connection] = limits
            connection.resume_reading()
            self._sweep_again()
            return connection
        raise failure if failure is not None else OSError(f"{host} has no address")

    # Idle connections.

    def _sweep_again(self) -> None:
        """One timer for all connections, as often as the shortest idle time asks for."""
        limits = [listening.limits for listening in self._listening]
        idle_ms = [
            limit.idle_ms_max for limit in (*limits, *self._dialled.values()) if limit.idle_ms_max >= 0
        ]
        if not idle_ms or self._stopped:
            return
        delay_ms = max(min(idle_ms) / SWEEPS_PER_IDLE_TIME, SWEEP_MS_MIN)
        if self._sweep_timer is not None:
            if self._sweep_delay_ms <= delay_ms:
                return
            self._sweep_timer.cancel()
        self._sweep_delay_ms = delay_ms
        self._sweep_timer = self._runtime.call_later(delay_ms, self._sweep)

    def _sweep(self) -> None:
        self._sweep_timer = None
        now_ms = self._runtime.monotonic_ms()
        for connection in list(self._table.connections.values()):
            close_if_idle(connection, now_ms, connection.idle_ms_max)
        for dialled, limits in list(self._dialled.items()):
            close_if_idle(dialled, now_ms, limits.idle_ms_max)
        self._sweep_again()

    # Stopping.

    async def stop(self, grace_ms: int) -> None:
        """Accept and read no more; let open exchanges be answered and sent, for so long; close everything."""
        if self._stopped:
            return
        self._stopped = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for listening in self._listening:
            listening.close()
        for connection in list(self._table.connections.values()):
            connection.drain("the node stops")
        await self._until(lambda: not self._table.connections, grace_ms)
        for connection in list(self._table.connections.values()):
            connection.abort("the node stops, and its grace is over")
        for dialled in list(self._dialled):
            dialled.die("the node stops")
        await self._until(lambda: not self._table.connections and not self._dialled, None)

    async def _until(self, all_gone: Callable[[], bool], grace_ms: int | None) -> None:
        """Wait until they have gone and their handlers know, or until the grace is over."""
        over = asyncio.Event()
        timer = None if grace_ms is None else self._runtime.call_later(grace_ms, over.set)
        self._when_gone = lambda: over.set() if all_gone() else None
        if not all_gone():
            await over.wait()
        self._when_gone = None
        if timer is not None:
            timer.cancel()

    def _forget(self, connection: AcceptedConnection) -> None:
        self._table.forget(connection)
        if self._when_gone is not None:
            self._when_gone()

    def _forget_dialled(self, connection: OutboundConnection) -> None:
        del self._dialled[connection]
        if self._when_gone is not None:
            self._when_gone()


def close_if_idle(connection: Stream, now_ms: float, idle_ms_max: float) -> None:
    """Close it if it is the peer that has been silent for so long."""
    since_ms = connection.idle_since()
    if since_ms is not None and 0 <= idle_ms_max <= now_ms - since_ms:
        connection.die(f"idle for {idle_ms_max} ms")


def bind(address: Address, backlog: int) -> socket.socket:
    """A socket that listens there."""
    family, where = address
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(where)
        sock.listen(backlog)
    except BaseException:
        sock.close()
        raise
    return sock


async def connect(loop: asyncio.AbstractEventLoop, address: Address) -> socket.socket:
    """A socket that is connected to there."""
    family, where = address
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        prepare(sock)
        await loop.sock_connect(sock, where)
    except BaseException:
        sock.close()
        raise
    return sock
