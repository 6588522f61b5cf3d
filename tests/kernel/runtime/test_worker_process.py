"""The worker process: outcomes, order, cancelling, death of either side."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from blumfeld.kernel.runtime.asyncio_runtime import AsyncioRuntime
from tests.kernel.runtime import worker_jobs

ROOT = Path(__file__).resolve().parents[3]


def run(body: Callable[[AsyncioRuntime], Coroutine[Any, Any, None]]) -> None:
    """Run ``body(runtime)`` in a loop of its own, and close the runtime."""

    async def main() -> None:
        runtime = AsyncioRuntime(lambda where, error: pytest.fail(f"{where}: {error}"))
        try:
            await body(runtime)
        finally:
            began = time.monotonic()
            await runtime.close()
            assert time.monotonic() - began < 30, "the end is bounded"

    asyncio.run(main())


def is_alive(process_id: int) -> bool:
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def wait_until(holds: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "in time"
        time.sleep(0.01)


def test_jobs_run_in_one_other_process_in_order_and_it_ends_with_the_runtime() -> None:
    seen: list[int] = []

    async def body(runtime: AsyncioRuntime) -> None:
        ids = await asyncio.gather(*(runtime.offload_process(worker_jobs.process_id) for _ in range(3)))
        assert await runtime.offload_process(worker_jobs.add, 2, 3) == 5
        seen.extend(ids)

    run(body)
    assert len(set(seen)) == 1
    assert seen[0] != os.getpid()
    assert not is_alive(seen[0])


def test_a_worker_is_small_and_polite() -> None:
    """It starts without site-packages' hooks, imports only what a job needs, and lets the broker go first."""

    async def body(runtime: AsyncioRuntime) -> None:
        report = await runtime.offload_process(worker_jobs.report)
        assert report["peak_kib"] < 24_000
        assert report["nice"] >= 10
        assert report["isolated"]
        assert report["no_site"]

    run(body)


def test_exceptions_come_back_as_themselves() -> None:
    async def body(runtime: AsyncioRuntime) -> None:
        with pytest.raises(FileNotFoundError) as missing:
            await runtime.offload_process(worker_jobs.missing_file, "/nowhere/at/all")
        assert missing.value.errno == errno.ENOENT
        assert missing.value.filename == "/nowhere/at/all"
        with pytest.raises(RuntimeError, match="Stubborn: 1 and 2"):
            await runtime.offload_process(worker_jobs.stubborn)
        assert await runtime.offload_process(worker_jobs.prints) == 1

    run(body)


def test_a_job_pauses_when_it_says_so() -> None:
    async def body(runtime: AsyncioRuntime) -> None:
        assert 0.3 <= await runtime.offload_process(worker_jobs.pauses, 0.3) < 5

    run(body)


def test_a_job_that_cannot_be_sent_fails_alone() -> None:
    async def body(runtime: AsyncioRuntime) -> None:
        with pytest.raises((AttributeError, TypeError)):
            await runtime.offload_process(worker_jobs.add, lambda: 1, 2)
        assert await runtime.offload_process(worker_jobs.add, 1, 2) == 3

    run(body)


def test_a_worker_that_dies_fails_its_job_and_the_next_gets_another() -> None:
    async def body(runtime: AsyncioRuntime) -> None:
        first = await runtime.offload_process(worker_jobs.process_id)
        with pytest.raises(OSError, match="exit code 3"):
            await runtime.offload_process(worker_jobs.dies)
        second = await runtime.offload_process(worker_jobs.process_id)
        assert second != first
        os.kill(second, signal.SIGKILL)
        wait_until(lambda: not is_alive(second))
        assert await runtime.offload_process(worker_jobs.process_id) not in (first, second)

    run(body)


def test_a_cancelled_job_is_ended_before_the_next_one_begins(tmp_path: Path) -> None:
    async def body(runtime: AsyncioRuntime) -> None:
        job = asyncio.ensure_future(runtime.offload_process(worker_jobs.writes_for_ever, str(tmp_path)))
        while not os.listdir(tmp_path):
            await asyncio.sleep(0.01)
        behind = runtime.offload_process(worker_jobs.add, 1, 1)
        never = runtime.offload_process(worker_jobs.missing_file, "/nowhere")
        never.cancel()  # type: ignore[attr-defined]
        job.cancel()
        assert await behind == 2
        count = len(os.listdir(tmp_path))
        await asyncio.sleep(0.1)
        assert len(os.listdir(tmp_path)) == count
        with pytest.raises(asyncio.CancelledError):
            await job

    run(body)


def test_the_runtime_closes_under_a_job_that_never_ends(tmp_path: Path) -> None:
    async def body(runtime: AsyncioRuntime) -> None:
        job = asyncio.ensure_future(
            runtime.offload_process(worker_jobs.computes_for_ever, str(tmp_path / "busy"))
        )
        while not (tmp_path / "busy").exists():
            await asyncio.sleep(0.01)
        await runtime.close()
        with pytest.raises(OSError, match="killed by signal 9"):
            await job

    run(body)


PARENT = """
import asyncio, sys
from blumfeld.kernel.runtime.asyncio_runtime import AsyncioRuntime
from tests.kernel.runtime import worker_jobs

async def main():
    runtime = AsyncioRuntime(lambda *seen: None)
    print(await runtime.offload_process(worker_jobs.process_id), flush=True)
    await runtime.offload_process(getattr(worker_jobs, sys.argv[1]), sys.argv[2])

asyncio.run(main())
"""


@pytest.mark.parametrize("job", ["writes_for_ever", "computes_for_ever"])
def test_a_worker_dies_with_a_parent_that_is_killed(tmp_path: Path, job: str) -> None:
    """``kill -9``: nobody can tell the worker, and it is in the middle of a job, with or without steps."""
    place = tmp_path / "files"
    if job == "writes_for_ever":
        place.mkdir()
    command = [sys.executable, "-c", PARENT, job, str(place)]
    parent = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        wait_until(lambda: place.is_file() or (place.is_dir() and bool(os.listdir(place))))
        assert is_alive(worker)
        parent.kill()
        wait_until(lambda: not is_alive(worker))
    finally:
        parent.kill()
        parent.communicate()
