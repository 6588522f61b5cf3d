"""The handshakes of all connections: their steps run in workers, within limits of time and number, and are counted.

A step of a handshake signs or verifies, which takes up to some milliseconds. A thousand of them in a row would hold the
loop, so it only hands bytes over. ``ssl`` releases the interpreter meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from blumfeld.spi.hooks import Metric
from blumfeld.spi.runtime import Runtime, pause
from blumfeld_security.addresses import origin

STEPS_AT_ONCE = 8
"""Steps that a worker takes together: to hand over costs the loop as much as a small step."""
REST = 1.0
"""Rest of a worker after its steps while others wait, in times of what they took: the clients of a burst have work with
each answer, so without a rest they, the worker and the loop want more processors than two."""
REST_MS_MAX = 20.0
LOOK_MS = 250
"""Pause between two looks for handshakes whose time is over."""
TIME_MS_MAX = 10_000
"""Time that a handshake may take, as long as Kafka's clients wait (``socket.connection.setup.timeout.ms``). Kafka has
no limit of its own but for idle connections."""
OPEN_MAX = 2_048
"""Handshakes that may be under way. Each holds some 60 KB."""


class Handshaking(Protocol):
    """A connection whose handshake isn't over."""

    deadline_ms: float
    peer: str
    """The other side's address."""
    admitted: bool
    """Whether it holds memory for TLS, and so counts among those under way."""

    def step(self) -> None:
        """Work on what the other side sent. Called in a worker; nothing else of the connection is called meanwhile."""
        ...

    def stepped(self) -> None:
        """Take note on the loop that the step is over."""
        ...

    def fail(self, reason: str) -> None:
        """End the connection."""
        ...


def _work(steps: Sequence[Callable[[], None]]) -> None:
    for step in steps:
        step()


class Handshakes:
    """The handshakes of a node."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        time_ms_max: float = TIME_MS_MAX,
        open_max: int = OPEN_MAX,
        workers_max: int = 1,
    ) -> None:
        self._runtime = runtime
        self._time_ms_max = time_ms_max
        self._open_max = open_max
        self._open: dict[Handshaking, None] = {}
        """Connections whose handshake isn't over, whether it has begun or not."""
        self._admitted = 0
        self._by_peer: dict[str, dict[Handshaking, None]] = {}
        """Client by address → its handshakes under way, the oldest first."""
        self._queue: deque[tuple[Handshaking, float]] = deque()
        self._workers = 0
        self._workers_max = workers_max
        self._looking = False
        self.completed = 0
        self.failed = 0
        self.seconds = 0.0
        """Time of the completed ones together, from the first byte."""

    def now_ms(self) -> float:
        """Returns the monotonic time."""
        return self._runtime.monotonic_ms()

    def soon(self, callback: Callable[[], None]) -> None:
        """Call ``callback()`` in the next turn."""
        self._runtime.call_later(0, callback)

    def begin(self, handshake: Handshaking) -> None:
        """Begin the time of a new connection's handshake."""
        handshake.deadline_ms = self.now_ms() + self._time_ms_max
        self._open[handshake] = None
        if not self._looking:
            self._looking = True
            self._runtime.call_later(LOOK_MS, self._look)

    def admit(self, handshake: Handshaking) -> bool:
        """Whether the handshake may begin, now that its first bytes have come: not while too many are under way. An
        address with less than its share then takes the place of the oldest one of the address with most: one address
        shuts nobody else out."""
        own = self._by_peer.get(origin(handshake.peer), {})
        if self._admitted >= self._open_max:
            if len(own) >= self._open_max // (len(self._by_peer) + (not own)):
                return False
            most = max(self._by_peer.values(), key=len)
            next(iter(most)).fail("too many TLS handshakes of its address are under way")
        self._by_peer.setdefault(origin(handshake.peer), {})[handshake] = None
        self._admitted += 1
        handshake.admitted = True
        return True

    def _forget_admitted(self, handshake: Handshaking) -> None:
        self._admitted -= 1
        peer = origin(handshake.peer)
        own = self._by_peer[peer]
        del own[handshake]
        if not own:
            del self._by_peer[peer]

    def end(self, handshake: Handshaking, began_ms: float, *, completed: bool) -> None:
        """Forget a handshake. May be called twice."""
        if handshake not in self._open:
            return
        del self._open[handshake]
        if handshake.admitted:
            self._forget_admitted(handshake)
        if completed:
            self.completed += 1
            self.seconds += (self.now_ms() - began_ms) / 1000
        else:
            self.failed += 1

    def queue(self, handshake: Handshaking) -> None:
        """Have a worker take the next step; then ``stepped`` is called."""
        self._queue.append((handshake, self.now_ms()))
        if self._workers < self._workers_max:
            self._workers += 1
            self._runtime.spawn(self._serve(), "TLS handshakes")

    async def _serve(self) -> None:
        queue = self._queue
        try:
            while queue:
                began_ms = self.now_ms()
                batch = [queue.popleft() for _ in range(min(STEPS_AT_ONCE, len(queue)))]
                await self._runtime.offload(_work, [handshake.step for handshake, _ in batch])
                now_ms = self.now_ms()
                for handshake, queued_ms in batch:
                    handshake.deadline_ms += now_ms - queued_ms  # the time in our queue isn't the peer's
                    handshake.stepped()
                if queue:
                    await pause(self._runtime, min(REST * (now_ms - began_ms), REST_MS_MAX))
        finally:
            self._workers -= 1

    def _look(self) -> None:
        now_ms = self.now_ms()
        for handshake in list(self._open):
            if handshake.deadline_ms <= now_ms:
                handshake.fail(f"no handshake within {self._time_ms_max / 1000:g} s")
        self._looking = bool(self._open)
        if self._looking:
            self._runtime.call_later(LOOK_MS, self._look)

    def metrics(self) -> list[Metric]:
        """Returns the counters."""
        about = "TLS handshakes"
        return [
            Metric(
                "blumfeld_tls_handshakes_total", f"{about} that completed.", "counter", lambda: self.completed
            ),
            Metric(
                "blumfeld_tls_handshakes_failed_total",
                f"{about} that failed.",
                "counter",
                lambda: self.failed,
            ),
            Metric("blumfeld_tls_handshakes_open", f"{about} under way.", "gauge", lambda: self._admitted),
            Metric(
                "blumfeld_tls_handshake_seconds_total",
                "Time of the completed TLS handshakes together.",
                "counter",
                lambda: self.seconds,
            ),
        ]
