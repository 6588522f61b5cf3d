"""A worker process for long computations: implements :meth:`Runtime.offload_process` on this machine.

An edge module. One thread starts the process, gives it a job, waits for the outcome, and takes the next job. So it
works alike on every event loop. Linux ends the process with the thread that started it, so it can't outlive its owner.
"""

from __future__ import annotations

import asyncio
import errno
import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from blumfeld.kernel.runtime.worker_main import read_frame, write_frame

IDLE_SECONDS_MAX = 30.0
"""An idle worker process is ended after this time. The next job then pays for a start, some 50 ms."""
CLOSE_SECONDS_MAX = 5.0
"""Longest wait for a killed process: it may hang in the kernel on a broken device."""
_START = (
    "import sys; sys.path[:] = sys.argv[2:]; from blumfeld.kernel.runtime.worker_main import main; main()"
)


class _Job(msgspec.Struct, eq=False):
    work: Callable[..., Any]
    args: tuple[Any, ...]
    future: asyncio.Future[Any]
    unwanted: bool = False


class WorkerProcess:
    """Runs jobs in order, one at a time. Its methods are called on the loop's thread.

    If a job's future is cancelled before the job begins, the job is dropped. If it runs already, its process is killed,
    and the next job gets a new one. If the process dies, its job fails with ``OSError``.

    :param in_thread: as ``Runtime.in_thread``
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, in_thread: Callable[[Callable[[], None]], None]
    ) -> None:
        self._loop = loop
        self._in_thread = in_thread
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        """Guards the three fields below. Without it a cancellation could kill the process while it has another job."""
        self._running: _Job | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._doomed = False
        """The process was killed. It must get no more jobs, even if it still answers."""
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="blumfeld-worker-process", daemon=True)
        self._thread.start()

    @property
    def process_id(self) -> int | None:
        """Process id of the worker; ``None`` while there is none."""
        process = self._process
        return None if process is None else process.pid

    def run(self, work: Callable[..., Any], args: tuple[Any, ...]) -> asyncio.Future[Any]:
        """Queue ``work(files, *args)``. Returns a future of its result; see ``Runtime.offload_process``."""
        job = _Job(work, args, self._loop.create_future())
        job.future.add_done_callback(lambda future: self._cancelled(job) if future.cancelled() else None)
        self._jobs.put(job)
        return job.future

    def _cancelled(self, job: _Job) -> None:
        with self._lock:
            job.unwanted = True
            if self._running is job and self._process is not None:
                self._process.kill()
                self._doomed = True

    async def close(self) -> None:
        """Kill the process and its job. Takes no longer than ``CLOSE_SECONDS_MAX``."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()
        self._jobs.put(None)
        await self._loop.run_in_executor(None, self._thread.join, CLOSE_SECONDS_MAX)

    # The thread

    def _serve(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=IDLE_SECONDS_MAX if self._process is not None else None)
            except queue.Empty:
                self._end_process()
                continue
            if job is None:
                break
            self._do(job)
        self._end_process()

    def _do(self, job: _Job) -> None:
        try:
            succeeded, outcome = True, self._outcome(job)
        except Exception as error:
            succeeded, outcome = False, error

        def tell() -> None:
            if job.future.done():
                return
            if succeeded:
                job.future.set_result(outcome)
            else:
                job.future.set_exception(outcome)

        self._in_thread(tell)

    def _outcome(self, job: _Job) -> Any:
        data = pickle.dumps((job.work, job.args), pickle.HIGHEST_PROTOCOL)
        with self._lock:
            if job.unwanted or self._closed:
                raise OSError(errno.ECANCELED, "the worker process was not asked any more")
            process = self._process
            if process is None or self._doomed or process.poll() is not None:
                process = self._start(job.work)
            self._running = job
        try:
            frame = _exchange(process, data)
        finally:
            with self._lock:
                self._running = None
        if frame is None:
            code = self._end_process()
            raise OSError(errno.EPIPE, f"the worker process ended, {code}, in the middle of its work")
        succeeded, outcome = pickle.loads(frame)
        if succeeded:
            return outcome
        raise outcome

    def _start(self, work: Callable[..., Any]) -> subprocess.Popen[bytes]:
        """Start a process. The caller holds the lock. Raises ``OSError``."""
        self._reap()
        process = self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _START, str(os.getpid()), *_import_paths(work)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        return process

    def _end_process(self) -> str:
        """End the process if there is one. Returns how it ended, in words."""
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                self._process.kill()
            return self._reap()

    def _reap(self) -> str:
        """Wait for the process, which was killed or has ended, and close its pipes. The caller holds the lock."""
        process, self._process = self._process, None
        self._doomed = False
        if process is None:
            return ""
        with suppress(OSError):
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdout.close()
            process.stdin.close()
        code = process.wait()
        return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def _exchange(process: subprocess.Popen[bytes], data: bytes) -> bytes | None:
    """Send a job. Returns the outcome's frame, or ``None`` if the process died."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        write_frame(process.stdin, data)
    except BrokenPipeError:
        return None
    return read_frame(process.stdout)


def _import_paths(work: Callable[..., Any]) -> list[str]:
    """Returns the import paths for the worker. It runs without the import hooks of an editable install, so the folders
    of our package and the job's are added."""
    paths = dict.fromkeys(path for path in sys.path if path)
    for module in ("blumfeld", work.__module__.partition(".")[0]):
        for folder in getattr(sys.modules.get(module), "__path__", ()):
            paths.setdefault(os.path.dirname(os.path.abspath(folder)))
    return list(paths)
