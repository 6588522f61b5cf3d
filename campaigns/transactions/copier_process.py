"""The frame of the copying programs in Python: the spec on stdin, lines on stdout, the end of stdin."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

FENCED_STATUS = 3
FAILED_STATUS = 4
STUCK_S = 30
"""Longest time of a call that its client bounds by 10 s."""
HEADERS: list[tuple[str, str | bytes | None]] = [("fate", b"abort")]
"""Headers of the records of a transaction that is going to be aborted."""


class Copier:
    """One program: its spec, and what it tells in the words that :mod:`campaigns.transactions.programs` reads."""

    def __init__(self) -> None:
        self.spec: dict[str, Any] = json.loads(sys.stdin.readline())
        self._fate = random.Random(self.spec["seed"])
        self._over = threading.Event()
        self._held = 0
        faulthandler.register(signal.SIGQUIT)
        threading.Thread(target=self._await_end, daemon=True).start()

    def _await_end(self) -> None:
        with contextlib.suppress(OSError):
            sys.stdin.read()
        self._over.set()

    @contextlib.contextmanager
    def bounded(self, what: str) -> Iterator[None]:
        """Guard a call of a client: the program ends as failed if the call takes more than :data:`STUCK_S`.

        The watch counts its own sleeps, so that the time of a paused program doesn't count.
        """
        returned = threading.Event()

        def watch() -> None:
            for _ in range(STUCK_S):
                if returned.wait(1):
                    return
            self.say("failed", f"{what} did not return within {STUCK_S} s")
            os._exit(FAILED_STATUS)

        threading.Thread(target=watch, daemon=True).start()
        try:
            yield
        finally:
            returned.set()

    @property
    def goes_on(self) -> bool:
        """Whether stdin is open."""
        return not self._over.is_set()

    def pause_s(self) -> float:
        """Time between the records and the end of a transaction, so that kills hit open ones."""
        return self._fate.uniform(0, self.spec["pauseMs"] / 1000)

    def dooms(self) -> bool:
        """Whether the next transaction is to be aborted."""
        return self._fate.random() < float(self.spec["abortShare"])

    def say(self, *words: object) -> None:
        """Print a line at once."""
        print(*words, flush=True)

    def holds(self, count: int) -> None:
        """Tell how many partitions the consumer has, if it has changed."""
        if count != self._held:
            self._held = count
            self.say("holds", count)

    def aborted(self, places: Iterable[tuple[int, int]]) -> None:
        """Tell of a transaction that was aborted on purpose: partition and offset of its records."""
        self.say("aborted", *(f"{partition}:{offset}" for partition, offset in places))


def one_line(error: BaseException) -> str:
    """Return an error as a part of a line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def patiently(call: Callable[[], Any], may_retry: Callable[[Exception], bool], limit_s: float = 60.0) -> Any:
    """Call until it works, as long as its error may be retried."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            return call()
        except Exception as error:
            if not may_retry(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
