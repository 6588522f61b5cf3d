"""The sink role: a pipeline that reads topics and commits offsets with its output."""

from __future__ import annotations

from typing import Protocol


class Sink(Protocol):
    """Made by ``blumfeld_make_sink``; run by its own command, not inside a broker."""

    def describe(self) -> str:
        """What it reads and writes, for ``plan``."""
        ...

    async def run(self) -> None:
        """Read and write until stopped. What it committed is in its output exactly once."""
        ...

    async def stop(self) -> None:
        """Finish the batch at hand and return from ``run``. Legal without run."""
        ...
