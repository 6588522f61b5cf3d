"""Listens, dials and stops, on the streams of asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from blumfeld.spi.runtime import Runtime
from blumfeld.spi.transport import (
    ByteLayer,
    ConnectionHandler,
    DialedConnection,
    FrameReceiver,
    Limits,
    Listener,
)

from .connection import AcceptedConnection, OutboundConnection


class AcmeTransport:
    """``Transport``. WRITE HERE: byte layers (TLS), and those of ``Limits`` that nothing here reads: rates, memory."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.connections: set[AcceptedConnection] = set()
        self.dialled: set[OutboundConnection] = set()
        self.limits: dict[str, Limits] = {}
        self.gone = asyncio.Event()
        """Set whenever a connection has gone."""
        self._servers: list[asyncio.Server] = []
        self._stopped = False
        self._ids = 0

    def driver(self) -> str:
        """Say what drives the sockets. It stands in ``blumfeld plan``."""
        return "streams of asyncio"

    def next_id(self) -> int:
        """Return a number that no other connection has."""
        self._ids += 1
        return self._ids

    def is_full(self, new: AcceptedConnection, limits: Limits) -> bool:
        """Return whether a connection more is one too many."""
        others = [*self.connections]
        of_listener = sum(other.listener.name == new.listener.name for other in others)
        of_address = sum(other.peer_host == new.peer_host for other in others)
        address_max = limits.connections_per_ip_overrides.get(new.peer_host, limits.connections_per_ip_max)
        return (
            len(others) >= limits.connections_max
            or of_listener >= limits.listener_connections_max
            or of_address >= address_max
        )

    async def listen(
        self,
        listener: Listener,
        handler: ConnectionHandler,
        limits: Limits,
        byte_layer: Callable[[], ByteLayer] | None = None,
    ) -> int:
        """Bind and accept. Return the port."""
        self._check(byte_layer)
        self.limits[listener.name] = limits
        try:
            server = await asyncio.get_running_loop().create_server(
                lambda: AcceptedConnection(self, listener, handler),
                listener.host,
                listener.port,
                backlog=limits.listen_backlog,
            )
        except OSError as error:
            where = f"{listener.host}:{listener.port}"
            raise OSError(
                error.errno, f"listener {listener.name} cannot listen on {where}: {error.strerror}"
            ) from error
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def dial(
        self,
        host: str,
        port: int,
        receiver: FrameReceiver,
        limits: Limits,
        byte_layer: Callable[[], ByteLayer] | None = None,
    ) -> DialedConnection:
        """Connect to another node."""
        self._check(byte_layer)
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: OutboundConnection(self, receiver, limits), host, port
        )
        return connection

    def limit(self, listener: str, limits: Limits) -> None:
        """Take other limits for connections that come from now on."""
        if listener in self.limits:
            self.limits[listener] = limits

    async def stop(self, grace_ms: int) -> None:
        """Accept and read no more, wait for open exchanges, then close everything."""
        self._stopped = True
        for server in self._servers:
            server.close()
        for connection in [*self.connections]:
            connection.drain("the node stops")
        await self._until_gone(self.connections, grace_ms)
        for connection in [*self.connections]:
            connection.abort("the node stops, and its grace is over")
        for dialled in [*self.dialled]:
            dialled.transport.abort()
        await self._until_gone(self.connections, None)
        await self._until_gone(self.dialled, None)

    async def _until_gone(
        self, connections: set[AcceptedConnection] | set[OutboundConnection], grace_ms: int | None
    ) -> None:
        over = False

        def end() -> None:
            nonlocal over
            over = True
            self.gone.set()

        timer = None if grace_ms is None else self.runtime.call_later(grace_ms, end)
        while connections and not over:
            self.gone.clear()
            await self.gone.wait()
        if timer is not None:
            timer.cancel()

    def _check(self, byte_layer: Callable[[], ByteLayer] | None) -> None:
        if self._stopped:
            raise RuntimeError("the transport was stopped")
        if byte_layer is not None:
            raise OSError("acme_transport has no byte layers, so no TLS")
