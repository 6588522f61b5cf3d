"""Formats the directories of a plan."""

from __future__ import annotations

import asyncio
from typing import Any

from blumfeld.kernel.formatting.directories import Formatting, format_directories
from blumfeld.kernel.runtime.asyncio_runtime import AsyncioRuntime
from blumfeld.log.checkpoints import MetaProperties
from tests.kernel.fakes import plan_of


def all_formatted(*overrides: str, data_dir: object = None, **formatting: Any) -> dict[str, MetaProperties]:
    """What was written, by directory."""

    async def main() -> dict[str, MetaProperties]:
        runtime = AsyncioRuntime(lambda where, error: None)
        return format_directories(plan_of(*overrides, data_dir=data_dir), runtime, Formatting(**formatting))

    return asyncio.run(main())


def formatted(data_dir: object, *overrides: str, **formatting: Any) -> MetaProperties:
    (meta,) = all_formatted(*overrides, data_dir=data_dir, **formatting).values()
    return meta
