"""The send schedule of an open loop."""

from __future__ import annotations

import random


class Schedule:
    """Due times of an open loop's requests: evenly spaced slots, each request somewhere within its own slot, drawn by
    the seed.

    So the rate holds over every stretch, and no beat arises with the server's own timers. Two variants get the same
    requests at the same intended times. Request k of a process goes over its connection k modulo their number.
    """

    def __init__(
        self, seed: int, requests_per_s: float, batch_records: int, begin_ns: int, end_ns: int
    ) -> None:
        self.slot_ns = 1e9 / requests_per_s
        self._wait_ns = self.slot_ns * (batch_records - 1) / batch_records
        self._draw = random.Random(seed).random
        self._begin_ns, self._end_ns = begin_ns, end_ns
        self._count = 0
        self.intended_ns = self.due_ns = 0
        self.advance()

    @property
    def over(self) -> bool:
        """Whether nothing more is due before the measured part ends."""
        return self.intended_ns >= self._end_ns

    def advance(self) -> None:
        """Go on to the next request: ``intended_ns`` is its first record's time, ``due_ns`` its last record's."""
        self.intended_ns = self._begin_ns + int((self._count + self._draw()) * self.slot_ns)
        self.due_ns = self.intended_ns + int(self._wait_ns)
        self._count += 1
