"""The links between simulated machines: a matrix, one link for each direction of each pair.

Pure: a link holds its quality and its present trouble. :mod:`blumfeld_kit.simulation.network.network` carries the
bytes.
"""

from __future__ import annotations

from typing import Any

import msgspec

from blumfeld.spi.runtime import Random


class Weather(msgspec.Struct, frozen=True, kw_only=True):
    """The quality of a link."""

    latency_ms_min: float = 0.1
    latency_ms_max: float = 3.0
    slow_chance: float = 0.02
    """Probability that a piece takes ``slow_ms`` longer, and delays all pieces behind it on its connection."""
    slow_ms: float = 400.0
    split_chance: float = 0.3
    """Probability that sent bytes arrive in several pieces."""
    pieces_max: int = 4

    def delay_s(self, random: Random) -> float:
        """Draw the travelling time of one piece."""
        spread = self.latency_ms_max - self.latency_ms_min
        latency_ms = self.latency_ms_min + random.random() * spread
        if random.random() < self.slow_chance:
            latency_ms += random.random() * self.slow_ms
        return latency_ms / 1000.0

    def pieces(self, data: bytes, random: Random) -> list[bytes]:
        """Cut sent bytes into random pieces."""
        if len(data) < 2 or random.random() >= self.split_chance:
            return [data]
        wanted = 1 + random.randrange(self.pieces_max)
        cuts = sorted({1 + random.randrange(len(data) - 1) for _ in range(wanted)})
        return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


class Link:
    """The way from one machine to another. The way back is another link."""

    __slots__ = ("cut", "refuses", "stalled_until_s", "waiting", "weather")

    def __init__(self, weather: Weather) -> None:
        self.weather = weather
        self.cut = False
        """Nothing arrives until the link is healed. Senders notice only that nothing is acknowledged."""
        self.refuses = False
        """A firewall answers each attempt to connect with a reset."""
        self.stalled_until_s = 0.0
        """Nothing arrives before this time."""
        self.waiting: dict[Any, None] = {}
        """Streams whose next bytes wait for the end of the cut, in the order in which they were held up."""


class Links:
    """All links. A link exists from the first question for it, with the default weather."""

    def __init__(self, weather: Weather) -> None:
        self._weather = weather
        self._links: dict[tuple[str, str], Link] = {}

    def link(self, source: str, destination: str) -> Link:
        """Return the link from ``source`` to ``destination``."""
        link = self._links.get((source, destination))
        if link is None:
            link = self._links[source, destination] = Link(self._weather)
        return link

    def set_weather(self, weather: Weather) -> None:
        """Give every link this weather, and those that are still to come."""
        self._weather = weather
        for link in self._links.values():
            link.weather = weather

    def all_cut(self) -> list[tuple[str, str]]:
        """Return (source, destination) of every link that is cut."""
        return [ends for ends, link in self._links.items() if link.cut]

    def clear(self) -> list[Link]:
        """End every cut, refusal and stall, and restore the default weather. Return all links."""
        for link in self._links.values():
            link.cut = link.refuses = False
            link.stalled_until_s, link.weather = 0.0, self._weather
        return list(self._links.values())
