"""The transport of a simulated node: the node's own connections, over sockets of the simulated network.

It applies the contract of ``spi.transport`` strictly: the bytes that were received in a turn become garbage when it is
over, so code that keeps a frame for longer fails.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Protocol, cast

import msgspec

from blumfeld.net.connections.accepted import AcceptedConnection
from blumfeld.net.connections.acceptor import Acceptor
from blumfeld.net.connections.dialled import OutboundConnection
from blumfeld.net.readiness.acceptor import ReadinessAcceptor
from blumfeld.net.readiness.streams import ReadinessOutbound, ReadinessTurn, SocketCalls
from blumfeld.net.transport import BaseTransport
from blumfeld.net.turn import ReceivePool, Turn
from blumfeld.spi.hooks import Composition, EventLog, NoOptions, hookimpl
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.transport import ByteLayer, ConnectionHandler, FrameReceiver, Limits, Listener
from blumfeld_kit.simulation.network.network import Network, Wire
from blumfeld_kit.simulation.network.sockets import ListeningSocket, SimulatedReadiness, SimulatedSocket

LOOPBACK = ("127.0.0.1", "::1", "localhost", "0.0.0.0", "::")
"""Hosts that stand for the machine itself."""
READ_BYTES = 65_536
"""Taken from one connection in a turn, large frames excepted."""
GARBAGE = b"\xdd"
"""The bytes that overwrite what was received when its turn is over."""


class SpoilingPool(ReceivePool):
    """Memory whose bytes become garbage at the end of their turn."""

    __slots__ = ()

    def end_turn(self) -> None:
        """Spoil the frames of the turn, then reuse their memory."""
        for memory in (self.chunk[: self.position], *self._used_chunks, *self._used):
            memory[:] = GARBAGE * len(memory)
        super().end_turn()


class SimulatedTransport(BaseTransport):
    """``Transport`` of one incarnation of a node."""

    def __init__(self, runtime: Runtime, log: EventLog, network: Network, address: str) -> None:
        super().__init__(runtime, log)
        self.address = address
        """The machine's own address, which its loopback names stand for, too."""
        self.dead = False
        self._network = network
        self._readiness: SimulatedReadiness

    @property
    def accepted(self) -> dict[int, AcceptedConnection]:
        """The accepted connections, by number."""
        return self._table.connections

    def driver(self) -> str:
        """The name of the driver of the sockets."""
        return "simulated network"

    def make_turn(self) -> ReadinessTurn:
        loop = asyncio.get_running_loop()
        self._readiness = SimulatedReadiness(loop)
        turn = ReadinessTurn(
            self.runtime, loop.call_exception_handler, self._readiness, READ_BYTES, SocketCalls(None)
        )
        pool = turn.pool = SpoilingPool(READ_BYTES)
        pool.memory = turn.memory
        return turn

    async def bind(self, host: str, port: int, backlog: int) -> tuple[ListeningSocket, int]:
        """See :meth:`BaseTransport.bind`. :raises OSError: the port is taken, or the node has crashed"""
        if self.dead:
            raise OSError(errno.ENETDOWN, "the node is dead")
        made = ListeningSocket(self._readiness, self._network, self._resolved(host), port)
        return made, made.port

    def acceptor(
        self,
        turn: Turn,
        sock: ListeningSocket,
        listener: Listener,
        handler: ConnectionHandler,
        limits: Limits,
        byte_layer: Callable[[], ByteLayer] | None,
    ) -> Acceptor:
        made = ReadinessAcceptor(
            turn, self.log, sock, listener, handler, limits, byte_layer, self._table, self.forget
        )
        made.prepare = lambda sock: None
        return made

    async def connect(self, host: str, port: int) -> SimulatedSocket:
        """See :meth:`BaseTransport.connect`. :raises OSError: refused, or no answer"""
        made: list[SimulatedSocket] = []

        def end(wire: Wire) -> SimulatedSocket:
            made.append(SimulatedSocket(self._readiness, wire))
            return made[0]

        await self._network.connect(self._resolved(host), port, end, self.address)
        return made[0]

    def outbound(
        self,
        turn: Turn,
        sock: SimulatedSocket,
        receiver: FrameReceiver,
        limits: Limits,
        layer: ByteLayer | None,
    ) -> OutboundConnection:
        assert isinstance(turn, ReadinessTurn)
        return ReadinessOutbound(turn, sock, receiver, limits, layer, self.forget_dialled)

    def _resolved(self, host: str) -> str:
        return self.address if host in LOOPBACK else host

    def die(self) -> None:
        """Do nothing more: the node crashed. Its connections and ports are the network's to end."""
        self.dead = True
        if self._turn is not None:
            self._readiness.die()


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
        made = SimulatedTransport(runtime, composition.log("net"), world.network, world.address)
        world.transports.append(made)
        return made
