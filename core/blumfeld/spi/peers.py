"""Talking to other nodes: a client of the wire protocol for plug-ins, on the node's own transport."""

from __future__ import annotations

from typing import Protocol

from blumfeld.spi.completion import Completion
from blumfeld.wire.schema import Message


class PeerClient(Protocol):
    """Requests to other nodes over one pipelined connection for each (node, listener)."""

    def send(
        self, host: str, port: int, request: Message, version: int, timeout_ms: float
    ) -> Completion[Message]:
        """Send a request; completes with the response decoded at the same version.

        Fails with ``OSError`` (not reached, lost, or the peer broke the protocol) or ``TimeoutError``; it never
        retries.

        Provisional: first used by followers that fetch from their leader.
        """
        ...

    async def stop(self) -> None:
        """Close every connection; what is open fails with ``OSError``."""
        ...
