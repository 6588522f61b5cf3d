"""The processes of a campaign, one after the other: told to end when we are told to, and ended at a limit of time.

This is off every loop of the broker, so anyio is the natural tool: signals, a child and a deadline in one scope.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Sequence

import anyio
from anyio.abc import Process

from blumfeld_bench.usage import tree

TIMED_OUT = 124
"""Exit status of a run that took longer than allowed, as of ``timeout`` of the coreutils."""
GRACE_S = 30.0
"""Seconds that a process has after SIGTERM to stop the brokers it started; SIGKILL to all of them follows."""


async def run_all(lines: Sequence[Sequence[str]], limit_s: float | None = None) -> int:
    """Run each command line to its end; return the status of the first that fails, else 0.

    SIGTERM is passed on to the running process, and no further one is started. ``limit_s`` bounds all of them
    together; beyond it the running one is ended, and the status is :data:`TIMED_OUT`.
    """
    deadline = anyio.current_time() + (float("inf") if limit_s is None else limit_s)
    for line in lines:
        status = await run_one(line, deadline)
        if status:
            return status
    return 0


async def run_one(line: Sequence[str], deadline: float) -> int:
    """Run one process until it ends or the clock of the loop passes ``deadline``; return its status as a shell does."""
    # The terminal sends SIGINT to the process as well. Receiving it here only keeps us alive until the process has
    # ended, so that no prompt comes back while brokers are still being stopped.
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with (
            await anyio.open_process(line, stdin=None, stdout=None, stderr=None) as process,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(_pass_on, signals, process)
            with anyio.CancelScope(deadline=deadline) as scope:
                await process.wait()
            if scope.cancelled_caught:
                await _end(process)
            tasks.cancel_scope.cancel()
    if scope.cancelled_caught:
        return TIMED_OUT
    status: int | None = process.returncode
    assert status is not None
    return 128 - status if status < 0 else status


async def _pass_on(signals: AsyncIterator[signal.Signals], process: Process) -> None:
    async for signal_number in signals:
        if signal_number == signal.SIGTERM:
            process.terminate()


async def _end(process: Process) -> None:
    process.terminate()
    with anyio.move_on_after(GRACE_S):
        await process.wait()
        return
    kill_tree(process.pid)
    await process.wait()


def kill_tree(pid: int) -> None:
    """Send SIGKILL to a process and all that it started. Brokers and members of groups have sessions of their own."""
    for each in tree(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
