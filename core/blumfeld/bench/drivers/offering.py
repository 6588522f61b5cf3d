"""The send schedule of an open loop, and the set of producers that the load is sent by."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

from blumfeld.bench.drivers.frames import ProduceFrame
from blumfeld.bench.drivers.spec import share
from blumfeld.bench.drivers.wire.producing import ProduceSocket

OFFERS_MAX = 64
"""Requests sent in one go when several are due; then answers are read."""


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


class Producing:
    """All producers of a process, and the requests that they send."""

    def __init__(
        self, lanes: Sequence[Sequence[ProduceSocket]], pools: Sequence[Sequence[ProduceFrame]]
    ) -> None:
        """:param lanes: for each connection its sockets, one for each leader
        :param pools: for each leader its requests
        """
        self._lanes = lanes
        self._pools = pools
        self._frames = [(leader, frame) for leader, pool in enumerate(pools) for frame in pool]
        if len(pools) > 1:
            random.Random(len(self._frames)).shuffle(self._frames)
        self._sent = 0
        self.schedule: Schedule | None = None
        self.sockets = [sock for lane in lanes for sock in lane]

    @property
    def waiting(self) -> int:
        """Return the number of requests without an answer."""
        return sum(sock.waiting for sock in self.sockets)

    @property
    def all_broken(self) -> bool:
        """Whether no connection is left."""
        return all(sock.broken for sock in self.sockets)

    def start_closed(self, requests_max: int) -> None:
        """Keep every socket full until ``requests_max`` requests were sent (0: without end), evenly over the
        leaders.
        """
        takes = []
        for leader, pool in enumerate(self._pools):
            frames: Iterator[ProduceFrame] = itertools.cycle(pool)
            if requests_max:
                frames = itertools.islice(frames, len(share(requests_max, leader, len(self._pools))))
            takes.append(itertools.chain(frames, itertools.repeat(None)).__next__)
        for lane in self._lanes:
            for sock, take in zip(lane, takes, strict=True):
                sock.start(take)

    def offer_due(self, now_ns: int) -> None:
        """Send or queue the requests that are due by now, at most so many that answers aren't kept waiting."""
        schedule = self.schedule
        assert schedule is not None
        for _ in range(OFFERS_MAX):
            if schedule.due_ns > now_ns or schedule.over:
                return
            leader, frame = self._frames[self._sent % len(self._frames)]
            lane = self._lanes[self._sent % len(self._lanes)]
            lane[leader].offer(schedule.intended_ns, schedule.due_ns, frame)
            self._sent += 1
            schedule.advance()

    def stop(self) -> None:
        """Start no new requests; open ones go on."""
        for sock in self.sockets:
            sock.stop()
