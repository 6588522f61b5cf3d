"""Connections that are closed because no answer is possible, and the log of them."""

from __future__ import annotations

from blumfeld.spi.hooks import EventLog
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.transport import Exchange


class Refusals:
    """Closes connections. A flood writes one line for each address and kind of reason in ten seconds, and how many more
    there were.
    """

    def __init__(self, runtime: Runtime, events: EventLog) -> None:
        self._repeated = RepeatedEvents(runtime)
        self._events = events

    def refuse(self, exchange: Exchange, reason: str) -> None:
        """Close the connection that a request came on. What stands before a colon in ``reason`` is its kind."""
        peer = exchange.connection.peer_host
        key = (peer, reason.partition(":")[0])
        self._repeated.say(self._events.info, "connection closed", key, reason=reason, peer=peer)
        exchange.no_answer()
        exchange.connection.close(reason)
