"""This build on io_uring under valgrind.

``python -m campaigns.bench.counting.ring_in_bites run …`` stands for ``blumfeld run …``.

Valgrind 3.19 keeps its lock while the kernel waits in io_uring_enter. No other thread of the process runs until an
event arrives, nor does valgrind's own monitor. So this loop asks the ring without waiting, and sleeps a millisecond
if it is idle. That adds one turn of an idle loop, about 10,000 instructions, to each turn.
"""

from __future__ import annotations

import importlib
import runpy
import sys
import time
from typing import Any

BITE_S = 0.001


def main() -> None:
    """Run the broker."""
    selector: Any = importlib.import_module("blumfeld_net_uring.io_uring.loop").UringSelector
    whole = selector.select

    def select(self: Any, timeout: float | None = None) -> Any:
        ready = whole(self, 0)
        if not ready and timeout != 0 and self.ring.idle:
            time.sleep(BITE_S)
            ready = whole(self, 0)
        return ready

    selector.select = select
    sys.argv[0] = "blumfeld"
    runpy.run_module("blumfeld.cli.main", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
