"""A process with a session. It owns a node, waits for a line, writes under a check, and says what became of that.

``python paused_client.py HOST:PORT TIMEOUT_MS``
"""

from __future__ import annotations

import asyncio
import sys

from blumfeld.spi.zookeeper import Check, Set, ZooKeeperError
from blumfeld_consensus_zk_compat.zookeeper import Access, open_session
from blumfeld_kit.fakes.real_time import RealTimeRuntime


async def live(runtime: RealTimeRuntime, address: str, timeout_ms: float) -> None:
    """Say each step on a line of its own."""
    session = open_session(runtime, Access(servers=address, session_timeout_ms=timeout_ms))
    await session.connect(30_000)
    await session.create("/controller", ephemeral=True)
    print("leads", flush=True)
    await runtime.offload(sys.stdin.readline)
    print(session.state.value, flush=True)
    try:
        await session.multi([Check("/epoch"), Set("/epoch", b"by the paused one")])
        print("written", flush=True)
    except ZooKeeperError as error:
        print(type(error).__name__, flush=True)
    while session.state.value == "suspended":
        await asyncio.sleep(0.01)
    print(session.state.value, flush=True)
    await session.close()


if __name__ == "__main__":
    a_runtime = RealTimeRuntime()
    a_runtime.run(live(a_runtime, sys.argv[1], float(sys.argv[2])))
    a_runtime.end()
