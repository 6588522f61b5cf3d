"""A runtime without a running node: to describe a plan, or to format directories."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from blumfeld.kernel.runtime.asyncio_runtime import AsyncioRuntime


@asynccontextmanager
async def short_lived_runtime() -> AsyncIterator[AsyncioRuntime]:
    """A runtime that is closed at the end of the ``async with``. A defect in a callback is raised there and then."""
    runtime = AsyncioRuntime(_raised)
    try:
        yield runtime
    finally:
        await runtime.close()


def _raised(_where: str, error: BaseException) -> None:
    raise error
