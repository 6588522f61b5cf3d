"""The events of a run as one hash: two runs of one seed are the same if their hashes are."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable

EVENTS_KEPT = 400
"""Number of the newest events in the message of a run that fails."""
HASHED_TOGETHER = 256
"""Events that go into the hash with one call."""


class Trace:
    """The trace. Every event goes into the hash with its virtual time, and the newest stay readable."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._hash = hashlib.blake2b(digest_size=16)
        self._lines: list[str] = []
        self.events = 0
        self.newest: deque[str] = deque(maxlen=EVENTS_KEPT)

    def note(self, event: str) -> None:
        """Add an event."""
        line = f"{self._now_s():.6f} {event}"
        lines = self._lines
        lines.append(line)
        self.events += 1
        self.newest.append(line)
        if len(lines) >= HASHED_TOGETHER:
            self._add_to_hash()

    def digest(self) -> str:
        """The hash of all events so far."""
        self._add_to_hash()
        return self._hash.hexdigest()

    def _add_to_hash(self) -> None:
        lines, self._lines = self._lines, []
        if lines:
            self._hash.update("\n".join([*lines, ""]).encode())
