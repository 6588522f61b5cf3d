"""Real sockets in front of the simulated network, so that the contract kit's blocking clients reach it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from blumfeld.spi.runtime import Runtime
from blumfeld.spi.transport import ByteLayer, ConnectionHandler, Limits, Listener
from blumfeld_kit.simulation.network.links import Weather
from blumfeld_kit.simulation.network.network import Network, Wire
from blumfeld_kit.simulation.network.transport import SimulatedTransport
from blumfeld_kit.simulation.trace import Trace
from tests.plugins.net_asyncio.net_asyncio_tools import NoLog

ADDRESS = "10.0.0.1"
HERE = "127.0.0.1"
DRAIN_TRIES = 100


class Gateway:
    """Listens on loopback with each port that the simulated transport listens on, and passes bytes both ways."""

    def __init__(self, network: Network, address: str) -> None:
        self._network = network
        self._address = address
        self._servers: dict[int, asyncio.Server] = {}
        self._passages: dict[Passage, None] = {}

    async def open(self, port: int) -> None:
        """Listen on the port. :raises OSError: it is taken"""
        loop = asyncio.get_running_loop()
        self._servers[port] = await loop.create_server(
            lambda: Passage(self._network, (self._address, port), self._passages), "127.0.0.1", port
        )

    def close(self) -> None:
        """Refuse connections."""
        for server in self._servers.values():
            server.close()

    async def drain(self) -> None:
        """Let every client have what was sent to it, then end its socket."""
        for _ in range(DRAIN_TRIES):
            if not self._passages:
                return
            await asyncio.sleep(0.01)
        for passage in list(self._passages):
            passage.abort()
        await asyncio.sleep(0.01)


class Passage(asyncio.Protocol):
    """One client: a real socket on one side, a wire of the simulated network on the other."""

    def __init__(self, network: Network, to: tuple[str, int], passages: dict[Passage, None]) -> None:
        self._network = network
        self._to = to
        self._passages = passages
        passages[self] = None
        self._wire: Wire | None = None
        self._early = b""
        self._over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._socket = transport
        self._connecting = asyncio.ensure_future(self._connect())

    async def _connect(self) -> None:
        try:
            wire = await self._network.connect(*self._to, self._end, HERE)
        except OSError:
            self._socket.abort()
            return
        self._wire = wire
        wire.send(self._early)
        if self._over:
            wire.reset("the client is gone")

    def _end(self, wire: Wire) -> Beyond:
        wire.port = self._socket.get_extra_info("peername")[1]
        return Beyond(self)

    def data_received(self, data: bytes) -> None:
        if self._wire is None:
            self._early += data
        else:
            self._wire.send(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._over = True
        self._passages.pop(self, None)
        if self._wire is not None:
            self._wire.close("the client closed")

    def abort(self) -> None:
        self._socket.abort()

    def arrived(self, data: bytes) -> None:
        self._socket.write(data)

    def gone(self) -> None:
        self._socket.close()


class Beyond:
    """The simulated network's side of a passage."""

    def __init__(self, passage: Passage) -> None:
        self._passage = passage

    def data(self, data: bytes) -> None:
        self._passage.arrived(data)

    def lost(self, reason: str) -> None:
        self._passage.gone()


class GatewayTransport(SimulatedTransport):
    """The simulated transport on a network of its own, behind a gateway for each port."""

    @classmethod
    def made(cls, runtime: Runtime) -> GatewayTransport:
        """Make one on the running loop."""
        loop = asyncio.get_running_loop()
        calm = Weather(latency_ms_min=0.01, latency_ms_max=0.1, slow_chance=0.0, split_chance=0.1)
        network = Network(loop, Random(1), Trace(loop.time), calm)
        made = cls(runtime, NoLog(), network, ADDRESS)
        made._gateway = Gateway(network, ADDRESS)
        return made

    _gateway: Gateway

    async def listen(
        self,
        listener: Listener,
        handler: ConnectionHandler,
        limits: Limits,
        byte_layer: Callable[[], ByteLayer] | None = None,
    ) -> int:
        """Listen on the network and on loopback."""
        port = await super().listen(listener, handler, limits, byte_layer)
        await self._gateway.open(port)
        return port

    async def stop(self, grace_ms: int) -> None:
        """Stop both."""
        self._gateway.close()
        await super().stop(grace_ms)
        await self._gateway.drain()
