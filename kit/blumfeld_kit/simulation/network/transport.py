"""The transport of a simulated node: frames over :mod:`blumfeld_kit.simulation.network.network`.

It applies the contract of ``spi.transport`` strictly: a frame's bytes turn to garbage when its turn is over, so code
that keeps them for longer fails.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, cast

import msgspec

from blumfeld.spi.hooks import Composition, NoOptions, hookimpl
from blumfeld.spi.parts import Part, Parts, join, release
from blumfeld.spi.runtime import Phase, Runtime
from blumfeld.spi.transport import (
    ByteLayer,
    Connection,
    ConnectionHandler,
    DialedConnection,
    FrameReceiver,
    Limits,
    Listener,
)
from blumfeld_kit.simulation.network.network import End, Network, Wire

LOOPBACK = ("127.0.0.1", "::1", "localhost", "0.0.0.0", "::")
"""Hosts that stand for the machine itself."""
AT_ONCE_MAX = 4
"""Requests of one connection that are answered at once in a turn, before other connections have theirs."""
GARBAGE = b"\xdd"
"""The bytes that overwrite a frame when its turn is over."""


class Framer:
    """Cuts bytes into frames. Each frame has memory of its own."""

    def __init__(self, frame_bytes_max: int) -> None:
        self._rest = bytearray()
        self._frame_bytes_max = frame_bytes_max

    def add(self, data: bytes) -> None:
        """Add bytes of the stream."""
        self._rest += data

    def next(self) -> bytearray | None:
        """Return the next whole frame, or ``None``. :raises ConnectionError: its size is not allowed"""
        rest = self._rest
        if len(rest) < 4:
            return None
        size = int.from_bytes(rest[:4], "big", signed=True)
        if not 0 <= size <= self._frame_bytes_max:
            raise ConnectionError(f"a frame of {size} bytes is not within 0 and {self._frame_bytes_max}")
        if len(rest) < 4 + size:
            return None
        frame = rest[4 : 4 + size]
        del rest[: 4 + size]
        return frame


def framed(parts: Parts) -> bytes:
    """Return size and parts as bytes of the stream. File regions are read and released.

    :raises OSError: a file is shorter than its region
    """
    try:
        body = join(parts)
        if len(body) != sum(map(part_bytes, parts)):
            raise OSError(errno.EIO, "a file is shorter than its region")
    finally:
        release(parts)
    return len(body).to_bytes(4, "big") + body


def part_bytes(part: Part) -> int:
    """Return the bytes that a part promises."""
    return len(part) if isinstance(part, (bytes, bytearray, memoryview)) else part.size_bytes


class SimulatedExchange:
    """A request and the place of its answer."""

    __slots__ = ("connection", "data", "done", "passed")

    def __init__(self, connection: Accepted) -> None:
        self.connection: Connection = connection
        self.done = False
        self.passed = False
        self.data = b""

    def answer(self, parts: Parts) -> None:
        """Set the answer. It leaves in Phase.ANSWER."""
        self._settle()
        connection = cast("Accepted", self.connection)
        if connection.gone:
            release(parts)
            return
        try:
            self.data = framed(parts)
        except OSError as error:
            connection.abort(str(error))
            return
        connection.answered()

    def no_answer(self) -> None:
        """Note that the request gets no answer."""
        self._settle()
        cast("Accepted", self.connection).answered()

    def let_next_start(self) -> None:
        """Let the next request start."""
        if not self.passed:
            self.passed = True
            cast("Accepted", self.connection).wake()

    def _settle(self) -> None:
        if self.done:
            raise RuntimeError("the request was already answered")
        self.done = self.passed = True


class Accepted:
    """The node's side of a client's connection. Implements ``Connection`` and the network's ``End``."""

    def __init__(
        self,
        transport: SimulatedTransport,
        wire: Wire,
        number: int,
        listener: Listener,
        handler: ConnectionHandler,
        limits: Limits,
    ) -> None:
        self.id = number
        self.listener = listener
        self.peer_host = wire.peer.site.name
        self.peer_port = wire.peer.port
        self.state: Any = None
        self.gone = False
        self._transport = transport
        self._wire = wire
        self._handler = handler
        self._limits = limits
        self._framer = Framer(limits.frame_bytes_max)
        self._open: deque[SimulatedExchange] = deque()
        self._closing: str | None = None
        self._stopping: str | None = None
        self._muted_until_ms = 0.0
        self._sending = self._waking = False
        handler.opened(self)

    # From the network

    def data(self, data: bytes) -> None:
        """Take bytes that arrived."""
        if self._closing is None and self._stopping is None:
            self._framer.add(data)
            self._start_requests()

    def lost(self, reason: str) -> None:
        """Note that the connection is lost."""
        if self.gone:
            return
        self.gone = True
        self._transport.accepted.pop(self.id, None)
        if not self._transport.dead:
            self._handler.closed(self, reason)
            self._transport.check_idle()

    # Requests and answers

    def _start_requests(self) -> None:
        answered_at_once = 0
        while self._may_start():
            if answered_at_once >= AT_ONCE_MAX:
                self.wake()
                return
            try:
                frame = self._framer.next()
            except ConnectionError as error:
                self.close(str(error))
                return
            if frame is None:
                return
            exchange = SimulatedExchange(self)
            self._open.append(exchange)
            self._transport.spoil_after_turn(frame)
            self._handler.request(exchange, memoryview(frame))
            answered_at_once += exchange.done

    def _may_start(self) -> bool:
        newest = self._open[-1] if self._open else None
        return (
            not self.gone
            and self._closing is None
            and self._transport.runtime.monotonic_ms() >= self._muted_until_ms
            and (newest is None or newest.passed)
            and len(self._open) < self._limits.in_flight_max
        )

    def wake(self) -> None:
        """Start the next request in the next turn."""
        if not self._waking and not self.gone:
            self._waking = True
            self._transport.runtime.call_later(0, self._wake)

    def _wake(self) -> None:
        self._waking = False
        self._start_requests()

    def answered(self) -> None:
        """Send the answers that are next in order, at the end of the turn."""
        if not self._sending and not self.gone:
            self._sending = True
            self._transport.runtime.at_end_of_turn(Phase.ANSWER, self._send)

    def _send(self) -> None:
        self._sending = False
        if self.gone:
            return
        out = []
        while self._open and self._open[0].done:
            out.append(self._open.popleft().data)
        if any(out):
            self._wire.send(b"".join(out))
        reason = self._closing if self._closing is not None else self._stopping
        if self._closing is not None or (reason is not None and not self._open):
            self._wire.close(reason or "")
            self.lost(reason or "")
        else:
            self.wake()

    # Connection

    def mute(self, until_ms: float) -> None:
        """Start no request before that time."""
        self._muted_until_ms = max(until_ms, self._muted_until_ms)
        left_ms = self._muted_until_ms - self._transport.runtime.monotonic_ms()
        self._transport.runtime.call_later(max(left_ms, 0.0), self.wake)

    def close(self, reason: str) -> None:
        """Send the ready answers, then close."""
        if self._closing is None:
            self._closing = reason
            self.answered()

    def drain(self, reason: str) -> None:
        """Read no more, and close when every open request is answered."""
        self._stopping = reason
        self.answered()

    def abort(self, reason: str) -> None:
        """Close at once."""
        self._open.clear()
        self._wire.reset(reason)
        self.lost(reason)


class Refused:
    """The end of a connection that was one too many."""

    def data(self, data: bytes) -> None:
        """Drop bytes that arrived."""

    def lost(self, reason: str) -> None:
        """Do nothing."""


class Dialled:
    """A connection that the node opened. Implements ``DialedConnection`` and ``End``."""

    def __init__(
        self, transport: SimulatedTransport, receiver: FrameReceiver, limits: Limits, wire: Wire
    ) -> None:
        self._transport = transport
        self._receiver = receiver
        self._framer = Framer(limits.frame_bytes_max)
        self._wire = wire

    def data(self, data: bytes) -> None:
        """Take bytes that arrived."""
        self._framer.add(data)
        while (frame := self._framer.next()) is not None:
            self._transport.spoil_after_turn(frame)
            self._receiver.frame(memoryview(frame))

    def lost(self, reason: str) -> None:
        """Note that the connection is lost."""
        self._receiver.lost(reason)

    def send(self, parts: Parts) -> None:
        """Send one frame."""
        self._wire.send(framed(parts))

    def close(self) -> None:
        """Close after all bytes that were sent."""
        self._wire.close("closed by the node")


class SimulatedTransport:
    """``Transport`` of one incarnation of a node."""

    def __init__(self, runtime: Runtime, network: Network, address: str) -> None:
        self.runtime = runtime
        self.address = address
        """The machine's own address, which its loopback names stand for, too."""
        self.accepted: dict[int, Accepted] = {}
        self.dead = False
        self._network = network
        self._listening: list[tuple[str, int]] = []
        self._limits: dict[str, Limits] = {}
        self._connections = 0
        self._spoil: list[bytearray] = []
        self._idle: asyncio.Event | None = None
        self._stopped = False

    def driver(self) -> str:
        """The name of the driver of the sockets."""
        return "simulated network"

    async def listen(
        self,
        listener: Listener,
        handler: ConnectionHandler,
        limits: Limits,
        byte_layer: Callable[[], ByteLayer] | None = None,
    ) -> int:
        """Listen. :raises OSError: the port is taken, the node has crashed, or a byte layer is asked for"""
        if self.dead:
            raise OSError(errno.ENETDOWN, "the node is dead")
        self._check_layer(byte_layer)

        def accept(wire: Wire) -> End:
            self._connections += 1
            own = self._limits[listener.name]
            if self._is_one_too_many(wire, listener, own):
                wire.reset("too many connections")
                return Refused()
            made = Accepted(self, wire, self._connections, listener, handler, own)
            self.accepted[made.id] = made
            return made

        self._limits[listener.name] = limits
        host = self._resolved(listener.host)
        try:
            port = self._network.listen(host, listener.port, accept)
        except OSError as error:
            at = f"listener {listener.name}: {host}:{listener.port}"
            raise OSError(error.errno, error.strerror, at) from None
        self._listening.append((host, port))
        return port

    def _is_one_too_many(self, wire: Wire, listener: Listener, limits: Limits) -> bool:
        host, accepted = wire.peer.site.name, self.accepted.values()
        of_host = limits.connections_per_ip_overrides.get(host, limits.connections_per_ip_max)
        return (
            len(accepted) >= limits.connections_max
            or sum(one.listener.name == listener.name for one in accepted) >= limits.listener_connections_max
            or sum(one.peer_host == host for one in accepted) >= of_host
        )

    def limit(self, listener: str, limits: Limits) -> None:
        """Set the limits for later connections."""
        if listener in self._limits:
            self._limits[listener] = limits

    async def dial(
        self,
        host: str,
        port: int,
        receiver: FrameReceiver,
        limits: Limits,
        byte_layer: Callable[[], ByteLayer] | None = None,
    ) -> DialedConnection:
        """Connect. :raises OSError: refused, no answer, or a byte layer is asked for

        :raises RuntimeError: the transport was stopped
        """
        if self._stopped:
            raise RuntimeError("the transport was stopped")
        self._check_layer(byte_layer)
        made: list[Dialled] = []

        def end(wire: Wire) -> End:
            made.append(Dialled(self, receiver, limits, wire))
            return made[0]

        await self._network.connect(self._resolved(host), port, end, self.address)
        return made[0]

    def _check_layer(self, byte_layer: Callable[[], ByteLayer] | None) -> None:
        if byte_layer is not None:  # without it a composition with TLS would seem to have been tried
            raise OSError(errno.ENOTSUP, "the simulated transport has no byte layers")

    def _resolved(self, host: str) -> str:
        return self.address if host in LOOPBACK else host

    def spoil_after_turn(self, frame: bytearray) -> None:
        """Overwrite these bytes once this turn is over."""
        if not self._spoil:
            self.runtime.at_end_of_turn(Phase.ANSWER, self._spoil_frames)
        self._spoil.append(frame)

    def _spoil_frames(self) -> None:
        spoil, self._spoil = self._spoil, []
        for frame in spoil:
            frame[:] = GARBAGE * len(frame)

    def check_idle(self) -> None:
        """Note a lost connection: a stop may wait for it."""
        if self._idle is not None and not self.accepted:
            self._idle.set()

    async def stop(self, grace_ms: int) -> None:
        """Let open requests be answered in the grace time, then close everything."""
        self._stopped = True
        self._unlisten()
        for connection in list(self.accepted.values()):
            connection.drain("the node stops")
        if self.accepted:
            self._idle = asyncio.Event()
            over = self.runtime.call_later(grace_ms, self._idle.set)
            await self._idle.wait()
            over.cancel()
        for connection in list(self.accepted.values()):
            connection.abort("the node stops, and its grace is over")

    def die(self) -> None:
        """Do nothing more: the node crashed. Its connections and ports are the network's to end."""
        self.dead = True
        self._listening.clear()
        for connection in self.accepted.values():
            connection.gone = True
        self.accepted.clear()

    def _unlisten(self) -> None:
        for host, port in self._listening:
            self._network.unlisten(host, port)
        self._listening.clear()


class SimulatedWorld(Protocol):
    """The part of a simulated node's runtime that isn't in ``Runtime``."""

    network: Network
    address: str
    transports: list[SimulatedTransport]


class Plugin:
    """The plug-in ``net_simulated`` in the manifest of a simulated node."""

    options_class: type[msgspec.Struct] = NoOptions
    roles: tuple[str, ...] = ("network",)

    @hookimpl
    def blumfeld_make_transport(self, composition: Composition) -> SimulatedTransport:
        """Return the transport that belongs to the node's runtime."""
        runtime = composition.runtime
        world = cast("SimulatedWorld", runtime)
        made = SimulatedTransport(runtime, world.network, world.address)
        world.transports.append(made)
        return made
