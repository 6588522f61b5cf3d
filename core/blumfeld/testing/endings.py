"""A program that started nodes and is told to end: SIGTERM unwinds it, so that it stops them and removes their data."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

TOLD_TO_END = 128 + signal.SIGTERM
"""Exit status after SIGTERM, as a shell has it."""


@contextlib.contextmanager
def sigterm_unwinds() -> Iterator[None]:
    """Raise ``SystemExit`` with :data:`TOLD_TO_END` in the main thread at the first SIGTERM.

    Without it SIGTERM ends the process where it is: no ``finally`` block runs, and the nodes that it started go on.
    Further signals change nothing, because they would interrupt the very blocks that end the nodes.
    """
    signalled = False

    def take(number: int, frame: FrameType | None) -> None:
        nonlocal signalled
        if not signalled:
            signalled = True
            raise SystemExit(TOLD_TO_END)

    before = signal.signal(signal.SIGTERM, take)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
