"""The events of a run as one hash: two runs of one seed are the same if their hashes are."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable

EVENTS_KEPT = 400
"""Number of the newest events in the message of a run that fails."""


class Trace:
    """The trace. Every event goes into the hash with its virtual time, and the newest stay readable."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._hash = hashlib.blake2b(digest_size=16)
        self.events = 0
        self.newest: deque[str] = deque(maxlen=EVENTS_KEPT)

    def note(self, event: str) -> None:
        """Add an event."""
        line = f"{self._now_s():.6f} {event}"
        self._hash.update(line.encode())
        self._hash.update(b"\n")
        self.events += 1
        self.newest.append(line)

    def digest(self) -> str:
        """The hash of all events so far."""
        return self._hash.hexdigest()
