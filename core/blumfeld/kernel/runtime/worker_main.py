"""The main program of the worker process: reads jobs from stdin, runs one after the other, and writes outcomes to
stdout.

An edge module: it is a process. It imports little, so that it starts fast and stays small; jobs import what they need.

It must not outlive its parent, because the next node may work on the same files. Three things end it: the signal that
Linux sends when the parent's thread ends, the end of stdin, and a check of the parent's process id. It makes that check
between the steps of a job, and before it opens or changes a file.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any

from blumfeld.kernel.runtime.real_files import RealFile, RealFiles

NICE = 10
"""Niceness of the worker: the broker's loop goes first when both want the same core."""
FRAME = struct.Struct(">Q")
"""Header of a frame: the size of the pickle that follows, in bytes."""
PAUSE_SECONDS_MAX = 0.25
"""Longest sleep between two checks of the parent."""
_PR_SET_PDEATHSIG = 1
_SIGKILL = 9


class Parent:
    """The process that started this worker."""

    def __init__(self, process_id: int) -> None:
        self._process_id = process_id

    def check(self) -> None:
        """End this process at once if the parent is gone: its successor may work on the same files."""
        if os.getppid() != self._process_id:
            os._exit(1)


class WatchedFiles(RealFiles):
    """Files that are opened and changed only while the parent lives."""

    def __init__(self, parent: Parent) -> None:
        self._parent = parent

    def open(
        self, path: str, *, create: bool = False, exclusive: bool = False, write: bool = True
    ) -> RealFile:
        """As :class:`RealFiles`."""
        self._parent.check()
        return super().open(path, create=create, exclusive=exclusive, write=write)

    def rename(self, old: str, new: str) -> None:
        """As :class:`RealFiles`."""
        self._parent.check()
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        """As :class:`RealFiles`."""
        self._parent.check()
        super().unlink(path)

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        """As :class:`RealFiles`."""
        self._parent.check()
        super().set_modified_ms(path, time_ms)


def main() -> None:
    """Serve until stdin ends. The parent's process id is the first argument."""
    parent = Parent(int(sys.argv[1]))
    _die_with_parent()
    parent.check()
    with suppress(OSError):
        os.nice(NICE)
    jobs = os.fdopen(0, "rb", closefd=False)
    files = WatchedFiles(parent)
    with os.fdopen(os.dup(1), "wb") as outcomes:
        os.dup2(2, 1)  # a job's print() goes to stderr and not between the outcomes
        while (frame := read_frame(jobs)) is not None:
            write_frame(outcomes, _outcome(parent, files, frame))


def _die_with_parent() -> None:
    """Have Linux kill this process when the thread that started it ends. Elsewhere only the checks of the parent
    help."""
    import signal

    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches every process of the terminal, but the parent decides when this one ends
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)


def read_frame(stream: IO[bytes]) -> bytes | None:
    """Returns the next pickle; ``None`` at the end of the stream, even in the middle of a frame."""
    head = stream.read(FRAME.size)
    if len(head) < FRAME.size:
        return None
    size: int = FRAME.unpack(head)[0]
    data = stream.read(size)
    return data if len(data) == size else None


def write_frame(stream: IO[bytes], data: bytes) -> None:
    """Write one pickle, and flush."""
    stream.write(FRAME.pack(len(data)))
    stream.write(data)
    stream.flush()


def _outcome(parent: Parent, files: RealFiles, frame: bytes) -> bytes:
    """Run a job. Returns ``(True, result)`` or ``(False, exception)``, pickled."""
    try:
        work, args = pickle.loads(frame)
        return pickle.dumps((True, run_steps(work, files, args, parent.check)), pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        try:
            data = pickle.dumps((False, error), pickle.HIGHEST_PROTOCOL)
            pickle.loads(data)  # some exceptions can be pickled but not loaded again
            return data
        except Exception:
            return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))


def run_steps(
    work: Callable[..., Any], files: RealFiles, args: tuple[Any, ...], between: Callable[[], None]
) -> Any:
    """Run a job's generator to its end, with the pauses that it yields. ``between`` is called between its steps."""
    steps = work(files, *args)
    try:
        pause_seconds = next(steps)
        while True:
            between()
            wake = time.monotonic() + pause_seconds
            while (left := wake - time.monotonic()) > 0:
                time.sleep(min(left, PAUSE_SECONDS_MAX))
                between()
            pause_seconds = steps.send(time.monotonic())
    except StopIteration as stop:
        return stop.value
