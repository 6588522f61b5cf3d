"""The observer role: sees what the broker did, and changes nothing. A broker without one does nothing for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

UNKNOWN_API = -1
"""``api_key`` of a frame whose header could not be read."""


class RequestSeen(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request, as it was answered, or refused."""

    time_ms: int
    """Wall clock when the answer was ready, ms since the epoch."""
    listener: str
    peer_host: str
    peer_port: int
    principal: str
    """The client's principal; ``User:ANONYMOUS`` without a security plug-in."""
    client_id: str
    """"" when the client sent null, or the header could not be read."""
    api_key: int
    api_version: int
    correlation_id: int
    request_bytes: int
    """Size of the frame without its size field; 0 where the connection was closed instead of answered."""
    response_bytes: int
    """0 for a request without an answer."""
    error_code: int
    """The answer's own error, or the first of a topic, partition, group or other item in it; 0: none was seen.

    At most 1,000 items of an answer are looked at.
    """
    elapsed_ms: float
    """Time from the whole frame to its answer, waiting in the purgatory included."""
    closed: str = ""
    """The reason why the connection was closed instead of an answer; "" for every request that was served."""


class Observer(Protocol):
    """Made by ``blumfeld_make_observer``. Made → started → stopped; stop without start is legal.

    Rare events come by the hooks that announce them (``blumfeld_topic_created`` and its like), which an observer's
    plug-in may have as any other; counters of its own by ``blumfeld_metrics``.
    """

    async def start(self) -> None:
        """Called before the listeners open.

        :raises OSError: the node does not start
        """
        ...

    def requests(self, seen: Sequence[RequestSeen]) -> None:
        """Takes the answers of a turn, in their order, once they were sent. ``seen`` is never empty.

        Called on the loop: it must not block, and what it writes it hands to ``Runtime.offload``. An observer that
        raises is logged and called no more: the broker serves on.
        """
        ...

    async def stop(self) -> None:
        """Called once when every answer was sent and told: write what is left."""
        ...
