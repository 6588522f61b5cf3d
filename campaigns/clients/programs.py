"""A client's program as a process of its own, which tells in lines what becomes of it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import IO

END_S = 10.0
"""Longest wait for the end of a process that was killed."""


class Program:
    """One process of a client, in a group of its own. A thread hears its lines as they come."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        request: str,
        hear: Callable[[str], object],
        ended: Callable[[], object] = lambda: None,
        errors: IO[bytes] | None = None,
    ) -> None:
        """:param request: the first line of its stdin; none if empty
        :param ended: called when its last line was heard
        :param errors: gets what it prints on stderr"""
        self.name = name
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        if request:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(request + "\n")
        self._thread = threading.Thread(target=self._hear, args=(hear, ended), name=name, daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it runs, be it paused or not."""
        return self._process.poll() is None

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """Send SIGKILL to all its processes; what it had told before is heard."""
        self.signal(signal.SIGKILL)
        self.finish()
        self.await_end(END_S)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all its processes. Harmless when they have ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def finish(self) -> None:
        """End its stdin, without waiting."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended already
            self._process.stdin.close()

    def await_end(self, timeout_s: float) -> bool:
        """Wait until it has ended, and its last line was heard; return whether it did so in time."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        self._thread.join(END_S)
        self.finish()
        return True

    def _hear(self, hear: Callable[[str], object], ended: Callable[[], object]) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                hear(line)
        ended()
