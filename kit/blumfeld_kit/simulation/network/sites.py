"""The network side of one simulated machine: whether it is up, the ports it listens on, and the ends it holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

FIRST_PORT = 32_768
LAST_PORT = 60_999
"""Ephemeral ports, as on Linux."""


def at_once(callback: Callable[..., None], *arguments: Any) -> None:
    """Run arrivals at once: for a machine that is never paused, such as a client's."""
    callback(*arguments)


class OpenEnd(Protocol):
    """An end of a connection, as its machine sees it."""

    def process_died(self, reason: str) -> None:
        """Reset the connection; the process is told nothing."""
        ...

    def vanish(self) -> None:
        """Be gone. Neither the process nor the peer is told."""
        ...


class Waiting(Protocol):
    """A stream whose next bytes wait for the machine."""

    def way_is_free(self) -> None:
        """Send them again."""
        ...


class Site:
    """A machine as the network sees it. It is made with its first use."""

    __slots__ = (
        "_port",
        "backlog_full",
        "behind_proxy",
        "closed",
        "listening",
        "name",
        "run",
        "up",
        "waiting",
        "wires",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.up = True
        """Whether the machine has power. Without it nothing is answered, not even by a reset."""
        self.run: Callable[..., None] = at_once
        """Runs an arrival in the machine's process, when that process has time for it."""
        self.listening: dict[int, Callable[[Any], Any]] = {}
        """Port → the function that takes a wire and returns the receiver for it."""
        self.closed: dict[int, Callable[[Any], Any]] = {}
        """Ports that :meth:`close_ports` has closed."""
        self.backlog_full = False
        """The system drops attempts to connect: the process accepts too slowly. Open connections go on."""
        self.behind_proxy = False
        """A proxy in between accepts connections also while no process listens, or the machine is down."""
        self.wires: dict[OpenEnd, None] = {}
        """Open ends of connections."""
        self.waiting: dict[Waiting, None] = {}
        """Streams whose next bytes wait for this machine to come up."""
        self._port = FIRST_PORT

    def next_port(self) -> int:
        """Return the next ephemeral port."""
        self._port = FIRST_PORT if self._port >= LAST_PORT else self._port + 1
        return self._port

    def close_ports(self) -> list[int]:
        """Close every port, although the process lives: until :meth:`open_ports` connections are refused. Return the
        ports that were open."""
        self.closed.update(self.listening)
        self.listening.clear()
        return list(self.closed)

    def open_ports(self) -> None:
        """Listen again on what was closed, unless the process has ended meanwhile."""
        self.listening.update(self.closed)
        self.closed.clear()

    def process_died(self, reason: str) -> None:
        """Reset every connection and free every port, as the system does for a killed process."""
        self.listening.clear()
        self.closed.clear()
        for wire in list(self.wires):
            wire.process_died(reason)
        self.run = at_once

    def power_lost(self) -> None:
        """Forget every connection and every port. No peer hears of it."""
        self.up = False
        self.listening.clear()
        self.closed.clear()
        for wire in list(self.wires):
            wire.vanish()
        self.run = at_once

    def boot(self, run: Callable[..., None] = at_once) -> None:
        """Be up again, with a new process."""
        self.up = True
        self.run = run
        waiting, self.waiting = self.waiting, {}
        for stream in waiting:
            stream.way_is_free()
