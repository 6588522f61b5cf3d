"""Many logs in one process with few descriptors.

``python -m tests.plugins.storage_local.many_logs FOLDER LOGS DESCRIPTORS``.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from pathlib import Path

from blumfeld.config.values import TopicConfig
from blumfeld.kernel.runtime.asyncio_runtime import AsyncioRuntime
from blumfeld.spi.completion import Completion
from blumfeld.spi.parts import join, release
from blumfeld.spi.storage import PartitionLog, TopicPartition, WriteOutcome
from blumfeld_kit.storage_driver.node import CLUSTER_ID, NODE_ID, TOPIC_ID, Listener, make_batch
from blumfeld_storage_local.storage import LocalStorage
from tests.plugins.storage_local.local_node import Events


async def open_all(storage: LocalStorage, count: int) -> list[PartitionLog]:
    """Open, or make, every log."""
    config = TopicConfig()
    return [
        await storage.open_log(TopicPartition("topic", number), TOPIC_ID, config, Listener())
        for number in range(count)
    ]


async def use(log: PartitionLog) -> None:
    """Append once, read once."""
    outcomes: list[WriteOutcome] = []
    log.place(make_batch(1), 0)
    log.write(outcomes.append)
    assert outcomes[0].error is None, outcomes[0].error
    read = log.read(0, 1 << 20, 1, True)
    found = await read if isinstance(read, Completion) else read
    assert len(join(found.parts)) == found.size_bytes
    release(found.parts)


async def main(folder: str, count: int, descriptors: int) -> None:
    """Both lives."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, hard))
    runtime = AsyncioRuntime(lambda where, error: print(where, repr(error), file=sys.stderr))
    storage = LocalStorage(runtime, folder, Events(), open_files_max=descriptors // 2)
    await storage.start(CLUSTER_ID, NODE_ID)
    most = 0
    for log in await open_all(storage, count):
        await use(log)
        most = max(most, len(os.listdir("/proc/self/fd")))
    print(f"{count} logs written and read, {most} descriptors at most")
    await storage.stop(1)
    storage = LocalStorage(runtime, folder, Events(), open_files_max=descriptors // 2)
    began, before = time.perf_counter(), resident_bytes()
    await storage.start(CLUSTER_ID, NODE_ID)
    logs = await open_all(storage, count)
    assert all(log.written_end_offset == 1 for log in logs)
    took, grew = time.perf_counter() - began, resident_bytes() - before
    print(f"{count} logs opened again in {took:.2f} s, {grew / 1e6:.0f} MB more resident")
    await storage.stop(2)
    await runtime.close()


def resident_bytes() -> int:
    """Of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
