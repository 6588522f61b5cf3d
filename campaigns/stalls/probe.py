"""A client that asks something small every millisecond, in a process of its own: ``python -m …probe HOST:PORT PID``.

A line on standard input asks for what was worst since the line before: the longest round trip in ms, and the most CPU
time in ms that the broker's main thread used within one round trip. The second is the stall without the noise of a busy
machine, for a broker with one thread; it is 0 where the system doesn't tell.
"""

from __future__ import annotations

import select
import sys
import time

from blumfeld.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from campaigns.raw_connection import RawConnection

PAUSE_S = 0.001
TIMEOUT_S = 120.0


def main(address: str, pid: int) -> None:
    """Measure until standard input ends."""
    worst_ms = worst_cpu_ms = 0.0
    with RawConnection(address, TIMEOUT_S) as connection:
        while True:
            cpu_ms = thread_cpu_ms(pid)
            began = time.monotonic()
            connection.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
            worst_ms = max(worst_ms, (time.monotonic() - began) * 1000)
            worst_cpu_ms = max(worst_cpu_ms, thread_cpu_ms(pid) - cpu_ms)
            if select.select([sys.stdin], [], [], PAUSE_S)[0]:
                if not sys.stdin.readline():
                    return
                print(f"{worst_ms:.1f} {worst_cpu_ms:.1f}", flush=True)
                worst_ms = worst_cpu_ms = 0.0


def thread_cpu_ms(pid: int) -> float:
    """CPU time of a process's main thread so far."""
    try:
        with open(f"/proc/{pid}/task/{pid}/schedstat") as file:
            return int(file.read().split()[0]) / 1e6
    except OSError:
        return 0.0


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
