"""A network in memory: connections with latency that carry bytes in pieces, and break.

Each direction of a connection keeps its order, but connections overtake one another. All chance comes from one seeded
source, and every delivery is an event of the trace.
"""

from __future__ import annotations

import asyncio
import errno
import zlib
from collections import deque
from collections.abc import Callable
from typing import Protocol

import msgspec

from blumfeld.spi.runtime import Random
from blumfeld.testing.simulation.trace import Trace


class Weather(msgspec.Struct, frozen=True, kw_only=True):
    """The quality of the network."""

    latency_ms_min: float = 0.1
    latency_ms_max: float = 3.0
    slow_chance: float = 0.02
    """Probability that a piece takes ``slow_ms`` longer, and delays all pieces behind it on its connection."""
    slow_ms: float = 400.0
    split_chance: float = 0.3
    """Probability that sent bytes arrive in several pieces."""
    pieces_max: int = 4


class End(Protocol):
    """The receiver at one end of a connection."""

    def data(self, data: bytes) -> None:
        """Take bytes that arrived."""
        ...

    def lost(self, reason: str) -> None:
        """Note that the connection is lost. Called once."""
        ...


class Wire:
    """One end's view of a connection: send to the other end, or break it."""

    __slots__ = ("_other", "arrives_s", "arriving", "connection", "end")

    def __init__(self, connection: NetworkConnection) -> None:
        self.connection = connection
        self.end: End | None = None
        self.arrives_s = 0.0
        """Time at which the newest bytes for this end arrive."""
        self.arriving: deque[Callable[[], None]] = deque()
        """Bytes on their way, in order. Timers for the same time don't keep an order."""
        self._other: Wire

    def send(self, data: bytes) -> None:
        """Send bytes. They are lost if the connection breaks before they arrive."""
        self.connection.send(self._other, data)

    def close(self, reason: str) -> None:
        """Close. The other end is told after all bytes that were sent before."""
        self.connection.close(self._other, reason)

    def join(self, other: Wire) -> None:
        """Connect two wires."""
        self._other, other._other = other, self


class NetworkConnection:
    """A connection: two wires."""

    def __init__(self, network: Network, number: int) -> None:
        self.number = number
        self.network = network
        self.broken = False
        self.client = Wire(self)
        self.server = Wire(self)
        self.client.join(self.server)

    def _name(self, to: Wire) -> str:
        return f"{self.number}{'>' if to is self.server else '<'}"

    def send(self, to: Wire, data: bytes) -> None:
        """Send bytes, perhaps in several pieces."""
        if self.broken:
            return
        for piece in self.network.pieces(data):
            self._travel(to, lambda piece=piece: self._arrive(to, piece))  # type: ignore[misc]

    def _travel(self, to: Wire, arrive: Callable[[], None]) -> None:
        loop = self.network.loop
        to.arrives_s = max(to.arrives_s, loop.time() + self.network.latency_s())
        to.arriving.append(arrive)

        def next_arrives() -> None:
            to.arriving.popleft()()

        loop.call_at(to.arrives_s, next_arrives)

    def _arrive(self, to: Wire, piece: bytes) -> None:
        if self.broken or to.end is None:
            return
        self.network.trace.note(f"{self._name(to)} {len(piece)} {zlib.crc32(piece):08x}")
        to.end.data(piece)

    def close(self, to: Wire, reason: str) -> None:
        """Close the other end in order."""
        if not self.broken:
            self._travel(to, lambda: self.break_off(reason))

    def break_off(self, reason: str) -> None:
        """Break the connection at both ends at once. Bytes on their way are lost."""
        if self.broken:
            return
        self.broken = True
        self.network.trace.note(f"{self.number}x {reason}")
        self.network.connections.pop(self.number, None)
        for wire in (self.server, self.client):
            if wire.end is not None:
                wire.end.lost(reason)


class Network:
    """All hosts and connections."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, random: Random, trace: Trace, weather: Weather | None = None
    ) -> None:
        self.loop = loop
        self.trace = trace
        self.random = random
        self.weather = weather if weather is not None else Weather()
        self.connections: dict[int, NetworkConnection] = {}
        """Open connections, by number."""
        self.broken_off = 0
        self._listening: dict[tuple[str, int], Callable[[Wire], End]] = {}
        self._opened = 0
        self._ephemeral_port = 40_000

    def listen(self, host: str, port: int, accept: Callable[[Wire], End]) -> int:
        """Listen, and return the port. :raises OSError: the port is taken"""
        if port == 0:
            self._ephemeral_port += 1
            port = self._ephemeral_port
        if (host, port) in self._listening:
            raise OSError(errno.EADDRINUSE, "address in use", f"{host}:{port}")
        self._listening[host, port] = accept
        return port

    def unlisten(self, host: str, port: int) -> None:
        """Refuse connections from now on."""
        self._listening.pop((host, port), None)

    async def connect(self, host: str, port: int, end: Callable[[Wire], End]) -> Wire:
        """Connect; ``end`` makes the receiver at this side. :raises ConnectionRefusedError: nothing listens on the
        port
        """
        await asyncio.sleep(self.latency_s())
        accept = self._listening.get((host, port))
        if accept is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens on {host}:{port}")
        self._opened += 1
        connection = NetworkConnection(self, self._opened)
        self.connections[connection.number] = connection
        connection.client.end = end(connection.client)
        self.trace.note(f"{connection.number}+ {host}:{port}")
        connection.server.end = accept(connection.server)
        return connection.client

    def break_one(self) -> None:
        """Break a randomly chosen open connection."""
        if self.connections:
            numbers = sorted(self.connections)
            self.broken_off += 1
            self.connections[numbers[self.random.randrange(len(numbers))]].break_off("the network broke it")

    def latency_s(self) -> float:
        """Return the latency of the next piece."""
        weather = self.weather
        spread = weather.latency_ms_max - weather.latency_ms_min
        latency_ms = weather.latency_ms_min + self.random.random() * spread
        if self.random.random() < weather.slow_chance:
            latency_ms += self.random.random() * weather.slow_ms
        return latency_ms / 1000.0

    def pieces(self, data: bytes) -> list[bytes]:
        """Cut sent bytes into random pieces."""
        if len(data) < 2 or self.random.random() >= self.weather.split_chance:
            return [data]
        wanted = 1 + self.random.randrange(self.weather.pieces_max)
        cuts = sorted({1 + self.random.randrange(len(data) - 1) for _ in range(wanted)})
        return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
