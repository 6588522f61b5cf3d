"""Requests that wait until their batch is written or committed."""

from __future__ import annotations

from typing import Protocol

from blumfeld.wire.errors import ErrorCode


class AppendWaiter(Protocol):
    """Waits for the outcome of an append: until the batch is written (acks=1), or committed (acks=all)."""

    def appended(self, code: ErrorCode) -> None:
        """Take the outcome: NONE, or the error. Called once, and never before the append has returned."""
        ...
