"""Two members of a group as two threads, for clients whose calls block."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from campaigns.clients.client import WAIT_S, Consumed

Consume = Callable[[Consumed, threading.Event], None]
"""What a member does until the event is set: it appends what it reads, commits it, and leaves the group."""


def share_by_threads(consume: Consume, count: int, when_started: Callable[[], None]) -> list[Consumed]:
    """What each of two members got when they had ``count`` in all, or time was over."""
    shares: list[Consumed] = [[], []]
    done = threading.Event()
    threads = [threading.Thread(target=consume, args=(mine, done), daemon=True) for mine in shares]
    for thread in threads:
        thread.start()
    when_started()
    deadline = time.monotonic() + WAIT_S
    while sum(map(len, shares)) < count and time.monotonic() < deadline:
        time.sleep(0.05)
    done.set()
    for thread in threads:
        thread.join(WAIT_S)
    return shares
