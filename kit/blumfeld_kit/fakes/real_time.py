"""A runtime in real time that a test drives from outside, for parts that wait for threads or sockets of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from blumfeld.kernel.runtime.asyncio_runtime import AsyncioRuntime

T = TypeVar("T")


class RealTimeRuntime(AsyncioRuntime):
    """``Runtime`` on a loop of its own, asyncio's or the given one. ``end`` closes it."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.loop = asyncio.new_event_loop() if loop is None else loop
        self.defects: list[tuple[str, BaseException]] = []
        """(place, error) of every error that escaped from a task or an end-of-turn callback."""
        super().__init__(lambda where, error: self.defects.append((where, error)), loop=self.loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end. Return its result, or raise its error."""
        result = self.loop.run_until_complete(coroutine)
        assert not self.defects
        return result

    def end(self) -> None:
        """Cancel what runs, wait for the workers, close the loop."""
        self.loop.run_until_complete(self.close())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
