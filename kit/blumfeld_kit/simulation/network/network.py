"""A network in memory between machines: connections with latency that carry bytes in pieces, stall, and break.

Each direction of a connection keeps its order, but connections overtake one another. All chance comes from one seeded
source, and every delivery is an event of the trace.
"""

from __future__ import annotations

import asyncio
import errno
import heapq
from collections import Counter
from collections.abc import Callable, Collection

from blumfeld.spi.runtime import Random
from blumfeld_kit.simulation.network.links import Links, Weather
from blumfeld_kit.simulation.network.sites import Site
from blumfeld_kit.simulation.network.streams import End, NetworkConnection, Stream, Wire
from blumfeld_kit.simulation.trace import Trace

__all__ = ["CLIENTS", "End", "Network", "NetworkConnection", "Vantage", "Weather", "Wire"]

Place = str | tuple[str, str]
"""A machine, or a link: (source, destination)."""
CLIENTS = "10.9.0.1"
"""The machine of a connection whose caller names none."""
CONNECT_S_MAX = 30.0
"""Time after which an attempt to connect ends, if nothing comes back."""
PROXY_S_MAX = 10.0
"""Time after which a proxy that reaches nobody closes a connection, at most."""
FIRST_RETRY_S = 1.0
"""Pause before the first repetition of an attempt to connect; the next one is twice as long, as in TCP."""


class Network:
    """All machines, links and connections."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, random: Random, trace: Trace, weather: Weather | None = None
    ) -> None:
        self.loop = loop
        self.trace = trace
        self.random = random
        self.links = Links(weather if weather is not None else Weather())
        self.connections: dict[int, NetworkConnection] = {}
        """Open connections, by number."""
        self.delivered = 0
        """Pieces of streams that arrived."""
        self.unanswered = 0
        """Attempts to connect that nobody has answered, and that wait for their next repetition."""
        self._sites: dict[str, Site] = {}
        self._opened = 0
        self._ephemeral_port = 40_000
        self._due: list[tuple[float, int, Stream]] = []
        self._scheduled = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0
        self._troubles: Counter[Place] = Counter()
        self._calm_since_s: dict[Place, float] = {}

    def site(self, host: str) -> Site:
        """Return the network side of a machine."""
        site = self._sites.get(host)
        if site is None:
            site = self._sites[host] = Site(host)
        return site

    # Connections

    def listen(self, host: str, port: int, accept: Callable[[Wire], End]) -> int:
        """Listen, and return the port. :raises OSError: the port is taken"""
        if port == 0:
            self._ephemeral_port += 1
            port = self._ephemeral_port
        listening = self.site(host).listening
        if port in listening:
            raise OSError(errno.EADDRINUSE, "address in use", f"{host}:{port}")
        listening[port] = accept
        return port

    def unlisten(self, host: str, port: int) -> None:
        """Refuse connections from now on."""
        site = self.site(host)
        site.listening.pop(port, None)
        site.closed.pop(port, None)

    async def connect(self, host: str, port: int, end: Callable[[Wire], End], source: str = CLIENTS) -> Wire:
        """Connect from the machine ``source``; ``end`` makes the receiver at this side.

        :raises ConnectionRefusedError: the machine is up, and nothing listens on the port; or a firewall refuses
        :raises TimeoutError: nothing comes back: the machine is down, its backlog is full, or a link is cut
        """
        here, there = self.site(source), self.site(host)
        out, back = self.links.link(source, host), self.links.link(host, source)
        left_s, retry_s = CONNECT_S_MAX, FIRST_RETRY_S
        while True:
            stall_s = max(out.stalled_until_s, back.stalled_until_s) - self.loop.time()
            await asyncio.sleep(out.weather.delay_s(self.random) + max(stall_s, 0.0))
            answers = (there.up and not there.backlog_full) or there.behind_proxy
            if answers and not (out.cut or back.cut):
                break
            if left_s <= 0:
                raise TimeoutError(errno.ETIMEDOUT, f"no answer from {host}:{port}")
            self.unanswered += 1
            try:
                await asyncio.sleep(min(retry_s, left_s))
            finally:
                self.unanswered -= 1
            left_s, retry_s = left_s - retry_s, retry_s * 2
        accept = there.listening.get(port)
        if accept is None and there.behind_proxy:
            there, accept = self.site(f"the proxy of {host}"), self._proxied
        if accept is None or out.refuses:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens on {host}:{port}")
        if not here.up:
            raise OSError(errno.ENETDOWN, f"the machine {source} is down")
        self._opened += 1
        connection = NetworkConnection(self, self._opened, here, there, port)
        self.connections[connection.number] = connection
        self.trace.note(f"{connection.number}+ {source} {host}:{port}")
        connection.client.end = end(connection.client)
        there.run(_accepted, accept, connection.server)
        return connection.client

    def _proxied(self, wire: Wire) -> End:
        """Accept for a process that isn't there. The proxy closes when its own attempt to connect has failed."""
        self.loop.call_later(self.random.random() * PROXY_S_MAX, wire.close, "the proxy reaches nobody")
        return _Silent()

    def connection_over(self, number: int) -> None:
        """Forget a connection: both ends are closed."""
        self.connections.pop(number, None)

    def break_between(self, sources: Collection[str], destination: str) -> None:
        """Break the connections that these machines have opened to another one."""
        for connection in list(self.connections.values()):
            if connection.server.site.name == destination and connection.client.site.name in sources:
                connection.break_off("the network broke it")

    # Trouble

    def cut(self, source: str, destination: str) -> None:
        """Let nothing arrive from ``source`` at ``destination`` until :meth:`heal`."""
        link = self.links.link(source, destination)
        if not link.cut:
            link.cut = True
            self.trouble((source, destination))
            self.trace.note(f"cut {source} {destination}")

    def heal(self, source: str, destination: str) -> None:
        """End a cut. What waited arrives."""
        link = self.links.link(source, destination)
        if link.cut:
            link.cut = False
            self.trouble_over((source, destination))
            self.trace.note(f"heal {source} {destination}")
            self._resume(link.waiting)

    def refuse(self, source: str, destination: str) -> None:
        """Let a firewall refuse connections from ``source`` to ``destination``, and reset those that are there."""
        self.links.link(source, destination).refuses = True
        self.trace.note(f"refuse {source} {destination}")
        for connection in list(self.connections.values()):
            ends = connection.client.site.name, connection.server.site.name
            if ends == (source, destination):
                connection.break_off("a firewall refused it")

    def refuse_no_more(self, source: str, destination: str) -> None:
        """End the refusal."""
        self.links.link(source, destination).refuses = False
        self.trace.note(f"refuse no more {source} {destination}")

    def close_ports(self, host: str) -> bool:
        """Close the ports of a process that lives, with their connections. Return whether there were any."""
        site = self.site(host)
        ports = site.close_ports()
        for wire in [
            candidate for candidate in site.wires if isinstance(candidate, Wire) and candidate.port in ports
        ]:
            wire.reset("the listener was closed")
        self.trace.note(f"close ports {host}")
        return bool(ports)

    def open_ports(self, host: str) -> None:
        """End :meth:`close_ports`."""
        self.site(host).open_ports()
        self.trace.note(f"open ports {host}")

    def hold_streams_of(self, host: str, seconds: float, *, opened: bool = False) -> None:
        """Hold up what the machine sends over its open connections, as lost segments do that are repeated after ever
        longer pauses. Connections that it opens later overtake them.

        :param opened: only over those that it opened itself: its requests, and not its answers. Others take these
            requests, also if their sender has ended meanwhile
        """
        until_s = self.loop.time() + seconds
        self.trace.note(f"hold {host} {seconds:.3f}")
        for wire in list(self.site(host).wires):
            if isinstance(wire, Wire) and (not opened or wire is wire.connection.client):
                wire.out.held_until_s = until_s
                self._calm_from((host, wire.peer.site.name), until_s)

    def stall(self, source: str, destination: str, seconds: float) -> None:
        """Let nothing arrive for some time. What was sent arrives then, all at once."""
        until_s = self.loop.time() + seconds
        self.links.link(source, destination).stalled_until_s = until_s
        self._calm_from((source, destination), until_s)
        self.trace.note(f"stall {source} {destination} {seconds:.3f}")

    def heal_all(self) -> None:
        """End every cut, refusal and stall, let each port answer as its process does, and restore the weather."""
        for source, destination in self.links.all_cut():
            self.heal(source, destination)
        self.links.clear()
        for site in self._sites.values():
            site.backlog_full = site.behind_proxy = False
            site.open_ports()

    def trouble(self, place: Place) -> None:
        """Note the beginning of a trouble that may make requests go unanswered."""
        self._troubles[place] += 1

    def trouble_over(self, place: Place) -> None:
        """Note its end."""
        self._troubles[place] -= 1
        self._calm_from(place, self.loop.time())

    def _calm_from(self, place: Place, time_s: float) -> None:
        self._calm_since_s[place] = max(self._calm_since_s.get(place, 0.0), time_s)

    def calm_since_s(self, source: str, host: str) -> float | None:
        """Return the time from which no cut, stall, power loss or pause has stood between a client at ``source`` and
        the process at ``host``; ``None``: one stands now. Trouble elsewhere counts for nothing: a broker that answers
        nobody must not be excused by it.
        """
        places: tuple[Place, ...] = (host, (source, host), (host, source))
        if any(self._troubles[place] for place in places):
            return None
        since_s = max(self._calm_since_s.get(place, 0.0) for place in places)
        return since_s if since_s <= self.loop.time() else None

    def _resume(self, waiting: dict[Stream, None]) -> None:
        streams = list(waiting)
        waiting.clear()
        for stream in streams:
            stream.way_is_free()

    # Deliveries

    def schedule(self, when_s: float, stream: Stream) -> None:
        """Let a stream deliver at that time; streams of one time deliver in the order of these calls."""
        # Own tuples instead of one asyncio timer each: they compare in C, and only the next one needs a timer.
        self._scheduled += 1
        heapq.heappush(self._due, (when_s, self._scheduled, stream))
        timer = self._timer
        if timer is None or when_s < self._timer_s:
            if timer is not None:
                timer.cancel()
            self._timer_s = when_s
            self._timer = self.loop.call_at(when_s, self._deliver_due)

    def _deliver_due(self) -> None:
        self._timer = None
        due, now_s = self._due, self.loop.time()
        # Virtual time stands exactly at the timer's time; a real clock may have passed several.
        now_s = max(now_s, self._timer_s)
        try:
            while due and due[0][0] <= now_s:
                heapq.heappop(due)[2].arrive(now_s)
        finally:
            if due and self._timer is None:
                self._timer_s = due[0][0]
                self._timer = self.loop.call_at(self._timer_s, self._deliver_due)


class Vantage:
    """The network as the machine ``source`` reaches it."""

    def __init__(self, network: Network, source: str) -> None:
        self.loop = network.loop
        self._network = network
        self._source = source

    async def connect(self, host: str, port: int, end: Callable[[Wire], End]) -> Wire:
        """As ``Network.connect``, from this machine."""
        return await self._network.connect(host, port, end, self._source)


class _Silent:
    """The receiver of a proxy that has nobody to give the bytes to."""

    def data(self, data: bytes) -> None:
        """Drop bytes that arrived."""

    def lost(self, reason: str) -> None:
        """Do nothing."""


def _accepted(accept: Callable[[Wire], End], wire: Wire) -> None:
    if wire.is_open:
        wire.end = accept(wire)
