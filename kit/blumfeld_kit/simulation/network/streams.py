"""One direction of a simulated connection: TCP's promises, and nothing beyond them.

Within a stream no byte is lost, doubled or overtaken. Trouble shows as a stall, a reset, or silence until the sender's
patience (:data:`ACK_S_MAX`) ends.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from enum import Enum
from typing import Protocol

from blumfeld.spi.runtime import Random
from blumfeld_kit.simulation.network.links import Link, Links
from blumfeld_kit.simulation.network.sites import Site
from blumfeld_kit.simulation.trace import Trace

ACK_S_MAX = 30.0
"""Time after which a sender gives up bytes that were not acknowledged (``TCP_USER_TIMEOUT``; Linux's default is about
15 minutes, which would outlast most runs).
"""
APART_S = 0.05
"""Time between held bytes and the sign that ends their stream. The receiver would drop bytes that it has not read when
the sign comes."""
RESEND_S = 0.2
"""Upper end of the delay after which a sender repeats its bytes once the way is free again."""


class End(Protocol):
    """The receiver at one end of a connection."""

    def data(self, data: bytes) -> None:
        """Take bytes that arrived."""
        ...

    def lost(self, reason: str) -> None:
        """Note that the connection is lost. Called once."""
        ...


class Carrier(Protocol):
    """The network, as a stream sees it."""

    loop: asyncio.AbstractEventLoop
    random: Random
    trace: Trace
    links: Links
    delivered: int

    def schedule(self, when_s: float, stream: Stream) -> None:
        """Let a stream deliver at that time."""
        ...

    def connection_over(self, number: int) -> None:
        """Forget a connection: both ends are closed."""
        ...

    def calm_since_s(self, source: str, host: str) -> float | None:
        """Return the time from which nothing has stood between two machines, or ``None``."""
        ...


class Sign(Enum):
    """Arrivals other than bytes."""

    CLOSE = "close"
    """The sender has closed in order."""
    RESET = "reset"
    """The sender's process is gone, or it aborted."""


class Wire:
    """One end of a connection: it sends to the other end, and takes what arrives here."""

    __slots__ = ("closed_in_order", "connection", "end", "is_open", "out", "peer", "port", "site")

    def __init__(self, connection: NetworkConnection, site: Site, port: int) -> None:
        self.connection = connection
        self.site = site
        self.port = port
        self.end: End | None = None
        self.is_open = True
        self.closed_in_order = False
        """The other end was closed in order, so all bytes from it have arrived."""
        self.peer: Wire
        self.out: Stream
        site.wires[self] = None

    @property
    def calm_since_s(self) -> float | None:
        """As ``Network.calm_since_s``, between this end and the other."""
        return self.connection.network.calm_since_s(self.site.name, self.peer.site.name)

    @property
    def peer_is_gone(self) -> bool:
        """Whether the other end is closed. This end may not have heard of it, and may never hear of it."""
        return not self.peer.is_open

    def send(self, data: bytes) -> None:
        """Send bytes. They are lost if the connection breaks before they arrive."""
        if self.is_open:
            self.out.put(data)

    def close(self, reason: str) -> None:
        """Close. The other end is told after all bytes that were sent before, and then this end."""
        if self.is_open:
            self.out.sign(Sign.CLOSE, reason)

    def reset(self, reason: str) -> None:
        """Close at once. The other end is told as soon as a reset can reach it."""
        if self.is_open:
            self.out.sign(Sign.RESET, reason)
            self.ended(reason)

    def ended(self, reason: str) -> None:
        """End here, and tell the receiver."""
        if self.forget():
            end = self.end
            if end is not None:
                self.site.run(end.lost, reason)

    def forget(self) -> bool:
        """End here without a word to anybody. Return whether it was open."""
        was_open, self.is_open = self.is_open, False
        self.site.wires.pop(self, None)
        if not self.peer.is_open:
            self.connection.over()
        return was_open

    def process_died(self, reason: str) -> None:
        """Reset the connection. The dead process is told nothing."""
        self.end = None
        self.reset(reason)

    def vanish(self) -> None:
        """Be gone with what was under way. Neither the process nor the peer is told."""
        self.end = None
        self.out.clear()
        self.forget()

    def took(self, piece: bytes) -> None:
        """Give bytes to the receiver, unless this end was closed before its process came to read them."""
        if self.is_open and self.end is not None:
            self.end.data(piece)


class NetworkConnection:
    """A connection: two wires, and a stream in each direction."""

    __slots__ = ("client", "network", "number", "server")

    def __init__(self, network: Carrier, number: int, source: Site, destination: Site, port: int) -> None:
        self.number = number
        self.network = network
        self.client = Wire(self, source, source.next_port())
        self.server = Wire(self, destination, port)
        self.client.peer, self.server.peer = self.server, self.client
        self.client.out = Stream(network, self.client, f"{number}>")
        self.server.out = Stream(network, self.server, f"{number}<")

    @property
    def broken(self) -> bool:
        """Whether both ends are closed."""
        return not (self.client.is_open or self.server.is_open)

    def break_off(self, reason: str) -> None:
        """Break the connection at both ends at once, as a device on the way may do. Bytes on their way are lost."""
        if self.broken:
            return
        self.network.trace.note(f"{self.number}x {reason}")
        self.client.out.clear()
        self.server.out.clear()
        for wire in (self.server, self.client):
            wire.ended(reason)

    def over(self) -> None:
        """Leave the network's table: both ends are closed."""
        self.network.connection_over(self.number)


class Stream:
    """Bytes and signs on their way from ``source`` to its peer, in order."""

    __slots__ = (
        "_arrives_s",
        "_back",
        "_name",
        "_network",
        "_scheduled",
        "_unacked_since_s",
        "_way",
        "held_until_s",
        "link",
        "source",
    )

    def __init__(self, network: Carrier, source: Wire, name: str) -> None:
        self.source = source
        self._network = network
        self._name = name
        here, there = source.site.name, source.peer.site.name
        self.link: Link = network.links.link(here, there)
        self._back: Link = network.links.link(there, here)
        self._way: deque[tuple[float, bytes | Sign, str]] = deque()
        """(time of arrival, bytes or sign, its reason)."""
        self._arrives_s = 0.0
        self.held_until_s = 0.0
        """Nothing of this stream arrives before this time, whatever the link delivers."""
        self._scheduled = False
        self._unacked_since_s: float | None = None

    def put(self, data: bytes) -> None:
        """Send bytes, perhaps in several pieces."""
        for piece in self.link.weather.pieces(data, self._network.random):
            self._travel(piece, "")

    def sign(self, sign: Sign, reason: str) -> None:
        """Send a sign behind all bytes."""
        if self.held_until_s > self._network.loop.time():
            self._arrives_s = max(self._arrives_s, self.held_until_s + APART_S)
        self._travel(sign, reason)

    def clear(self) -> None:
        """Lose everything on its way."""
        self._way.clear()
        self.link.waiting.pop(self, None)
        self.source.peer.site.waiting.pop(self, None)

    def _travel(self, piece: bytes | Sign, reason: str) -> None:
        network = self._network
        now_s = network.loop.time()
        self._arrives_s = max(self._arrives_s, now_s + self.link.weather.delay_s(network.random))
        self._way.append((self._arrives_s, piece, reason))
        if self._unacked_since_s is None:
            self._unacked_since_s = now_s
        if not self._scheduled:
            self._scheduled = True
            network.schedule(self._arrives_s, self)

    def arrive(self, now_s: float) -> None:
        """Deliver what is due, or wait until the way is free."""
        self._scheduled = False
        if not self._way:
            return
        link, site = self.link, self.source.peer.site
        if link.cut or not site.up:
            (link.waiting if link.cut else site.waiting)[self] = None
            self._lose_patience()
            return
        free_s = max(link.stalled_until_s, self.held_until_s)
        if free_s > now_s:
            self._scheduled = True
            self._network.schedule(free_s, self)
            return
        way = self._way
        while way and way[0][0] <= now_s:
            _, piece, reason = way.popleft()
            self._deliver(piece, reason)
        if self._back.cut:
            self._lose_patience()
        else:
            self._unacked_since_s = now_s if way else None
        if way and not self._scheduled:
            self._scheduled = True
            self._network.schedule(way[0][0], self)

    def way_is_free(self) -> None:
        """Repeat what waited for the end of a cut, or for the peer's machine."""
        if self._way and not self._scheduled:
            self._scheduled = True
            network = self._network
            network.schedule(network.loop.time() + network.random.random() * RESEND_S, self)

    def _deliver(self, piece: bytes | Sign, reason: str) -> None:
        to = self.source.peer
        trace = self._network.trace
        if not isinstance(piece, Sign):
            self._network.delivered += 1
            trace.note(f"{self._name} {len(piece)} {zlib.crc32(piece):08x}")
            if to.is_open:
                to.site.run(to.took, piece)
            elif self.source.is_open:
                # Its process is gone, and the machine is up: the system answers for a connection that it doesn't know.
                to.out.sign(Sign.RESET, "reset: the peer doesn't know this connection")
            return
        trace.note(f"{self._name} {piece.value} {reason}")
        if piece is Sign.CLOSE:
            to.closed_in_order = True
            if self.source.is_open:
                to.out.sign(Sign.CLOSE, reason)
        to.ended(reason)

    def _lose_patience(self) -> None:
        since_s = self._unacked_since_s
        if since_s is not None:
            loop = self._network.loop
            loop.call_at(max(since_s + ACK_S_MAX, loop.time()), self._give_up, since_s)

    def _give_up(self, since_s: float) -> None:
        if self._unacked_since_s == since_s and self.source.is_open:
            self._network.trace.note(f"{self._name} timed out")
            self.clear()
            self.source.ended("timed out: nothing was acknowledged")
