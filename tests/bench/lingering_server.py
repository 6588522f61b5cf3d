"""A process that says each SIGTERM it gets, and ends so many seconds after the first one. It listens nowhere.

``python lingering_server.py SECONDS``. Without a signal it ends after a minute. A node that stops in good order looks
like this; a second SIGTERM would make it end at once.
"""

from __future__ import annotations

import signal
import sys
import time

READY = "ready"
TOLD = "SIGTERM"


def main() -> None:
    signals: list[int] = []

    def take(number: int, frame: object) -> None:
        signals.append(number)
        print(TOLD, flush=True)

    signal.signal(signal.SIGTERM, take)
    print(READY, flush=True)
    deadline = time.monotonic() + 60
    while not signals and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(float(sys.argv[1]))


if __name__ == "__main__":
    main()
