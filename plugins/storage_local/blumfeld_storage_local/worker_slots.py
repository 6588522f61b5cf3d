"""A bound on the workers that one kind of work may have at once: the runtime has four, and syncs need one of them."""

from __future__ import annotations

from collections import deque

from blumfeld.spi.completion import Completion


class WorkerSlots:
    """``async with`` waits until fewer than ``at_once_max`` others are in the block. They come in their order."""

    __slots__ = ("_at_once_max", "_queue", "_running")

    def __init__(self, at_once_max: int) -> None:
        self._at_once_max = at_once_max
        self._running = 0
        self._queue: deque[Completion[None]] = deque()

    async def __aenter__(self) -> None:
        if self._running < self._at_once_max:
            self._running += 1
            return
        turn: Completion[None] = Completion()
        self._queue.append(turn)
        await turn

    async def __aexit__(self, *_: object) -> None:
        if self._queue:
            self._queue.popleft().complete(None)
        else:
            self._running -= 1
