"""Counts requests."""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.spi.observer import RequestSeen


class AcmeObserver:
    """Is told of each request once it was answered, on the broker's loop: it must not block."""

    def __init__(self) -> None:
        self.requests_seen = 0
        self.refused_by_client: dict[str, int] = {}

    async def start(self) -> None:
        """Open nothing."""

    def requests(self, seen: Sequence[RequestSeen]) -> None:
        """Count. What takes time goes to ``composition.runtime.offload``."""
        self.requests_seen += len(seen)  # WRITE HERE: what do you want to know of each of them?

    async def stop(self) -> None:
        """Write what is left."""
