"""Closes connections of requests that can't be answered, and logs each closing within limits."""

from __future__ import annotations

from blumfeld.spi.hooks import EventLog
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.transport import Exchange


class Refusals:
    """Closes connections. A flood of bad requests writes one line per address and kind of reason in ten seconds, with
    the number of further ones."""

    def __init__(self, runtime: Runtime, events: EventLog) -> None:
        self._repeated = RepeatedEvents(runtime)
        self._events = events

    def refuse(self, exchange: Exchange, reason: str) -> None:
        """Close the connection of a request.

        :param reason: the text for the log. Its part before the first colon is the kind by which floods are counted
        """
        peer = exchange.connection.peer_host
        key = (peer, reason.partition(":")[0])
        self._repeated.say(self._events.info, "connection closed", key, reason=reason, peer=peer)
        exchange.no_answer()
        exchange.connection.close(reason)
