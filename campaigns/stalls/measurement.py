"""One large request, and what the probe felt of it."""

from __future__ import annotations

import subprocess
import sys
import time

import msgspec

from blumfeld_bench.runs.servers import Server
from campaigns.raw_connection import ConnectionEnded, RawConnection

ANSWER_S = 45.0
QUIET_S = 0.3
"""The probe goes on for so long after the answer."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of one request."""

    title: str
    sent_bytes: int
    came: str
    """``answered``, ``closed``, ``no answer``, or ``died``."""
    answer_bytes: int
    took_ms: float
    worst_ms: float
    """Longest round trip of the probe meanwhile."""
    loop_ms: float
    """Most CPU time of the broker's main thread within one of them."""
    peak_bytes: int

    @property
    def stall_ms(self) -> float:
        """The delay that is the broker's own: what the machine took from it is left out."""
        return min(self.worst_ms, self.loop_ms)


class Probe:
    """A running probe process."""

    def __init__(self, server: Server) -> None:
        module = f"{__package__}.probe"
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, server.address, str(server.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.worst()

    def worst(self) -> tuple[float, float]:
        """(longest round trip, most loop time) in ms since the last call.

        :raises ConnectionEnded: the server has gone
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ConnectionEnded("the probe has ended") from None
        line = self._process.stdout.readline()
        if not line:
            raise ConnectionEnded("the probe has ended")
        worst_ms, loop_ms = line.split()
        return float(worst_ms), float(loop_ms)

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def measure(server: Server, probe: Probe, title: str, frame: bytes) -> Measured:
    """Send one request on a connection of its own, and wait for what comes, bounded by ``ANSWER_S``."""
    probe.worst()
    began = time.monotonic()
    came, answer_bytes = "answered", 0
    try:
        with RawConnection(server.address, ANSWER_S) as connection:
            connection.send_frame(frame)
            answer_bytes = connection.discard_frame()
    except TimeoutError:
        came = "no answer"
    except (ConnectionEnded, OSError):
        came = "closed"
    took_ms = (time.monotonic() - began) * 1000
    time.sleep(QUIET_S)
    worst_ms = loop_ms = float("nan")
    try:
        worst_ms, loop_ms = probe.worst()
    except ConnectionEnded:
        came = "died"
    if not server.is_up:
        came = "died"
    return Measured(
        title=title,
        sent_bytes=len(frame),
        came=came,
        answer_bytes=answer_bytes,
        took_ms=took_ms,
        worst_ms=worst_ms,
        loop_ms=loop_ms,
        peak_bytes=server.totals().rss_max_bytes,
    )
