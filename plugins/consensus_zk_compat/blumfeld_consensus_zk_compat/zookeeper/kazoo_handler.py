"""kazoo's side of the edge: its one thread, its sockets, and the queue through which everything reaches the loop."""

from __future__ import annotations

import contextlib
import os
import select
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from blumfeld.spi.runtime import Runtime

DRAIN_MS = 1.0
"""The longest that the queue holds the loop in one turn."""


class LoopQueue:
    """Brings calls from kazoo's thread to the loop, in order: answers, watch events and states alike."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._calls: deque[Callable[[], None]] = deque()
        self._scheduled = False

    def put(self, call: Callable[[], None]) -> None:
        """Call it on the loop, after all that was put before. Any thread may put."""
        self._calls.append(call)
        if not self._scheduled:
            self._scheduled = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: the node has ended
                self._runtime.in_thread(self._drain)

    def _drain(self) -> None:
        # First: what is put from now on, and not seen below, is drained by a call of its own.
        self._scheduled = False
        end_ms = self._runtime.monotonic_ms() + DRAIN_MS
        while self._calls:
            self._calls.popleft()()
            if self._runtime.monotonic_ms() > end_ms and not self._scheduled:
                self._scheduled = True
                self._runtime.call_later(0, self._drain)
                return


class Bell:
    """In place of the socket pair that wakes kazoo's thread: it counts, and it never blocks the thread that rings.

    kazoo sends one byte for each request. A socket pair is full after some 280 of them, and would stop the loop.
    """

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_SEMAPHORE | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        """As a socket."""
        return self._fd

    def send(self, data: bytes) -> int:
        """Ring once."""
        os.eventfd_write(self._fd, 1)
        return len(data)

    def recv(self, size: int) -> bytes:
        """Take one ring."""
        os.eventfd_read(self._fd)
        return b"\0" * size

    def close(self) -> None:
        """Give the descriptor back. kazoo closes both ends of its pair, and this is both."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class LoopHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's handler with no thread but that of its connection: callbacks run on the loop.

    kazoo's own has a thread for watch events and one for answers, so the order between the two is lost.
    """

    name = "blumfeld_loop_handler"

    def __init__(self, queue: LoopQueue, connect_timeout_s: float) -> None:
        super().__init__()
        self.over = False
        """Connect no more. kazoo begins a new session after one that expired; this session object is at its end."""
        self._queue = queue
        self._connect_timeout_s = connect_timeout_s

    def start(self) -> None:
        """Begin: there is no thread to start."""
        self._running = True

    def stop(self) -> None:
        """End."""
        self._running = False

    def dispatch_callback(self, callback: Any) -> None:
        """Call a watch on the loop."""
        self._queue.put(lambda: callback.func(*callback.args))

    def create_socket_pair(self) -> tuple[Bell, Bell]:
        """Return both ends of what wakes kazoo's thread."""
        bell = Bell()
        return bell, bell

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        """Connect, unless the session is over. No server may take the time that the others need."""
        if self.over:
            raise ConnectionRefusedError("the session is over")
        kwargs["timeout"] = min(self._connect_timeout_s, kwargs["timeout"])
        return super().create_connection(*args, **kwargs)

    def select(
        self, readers: Sequence[Any], writers: Sequence[Any], _: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """As ``select.select``. kazoo's own makes a selector for each call, and doesn't see what TLS has decrypted."""
        if decrypted := [reader for reader in readers if getattr(reader, "pending", int)()]:
            return decrypted, [], []
        poll = select.poll()
        for reader in readers:
            poll.register(reader, select.POLLIN)
        for writer in writers:
            poll.register(writer, select.POLLOUT)
        ready = {fd for fd, _ in poll.poll(None if timeout is None else timeout * 1000.0)}
        return (
            [reader for reader in readers if reader.fileno() in ready],
            [writer for writer in writers if writer.fileno() in ready],
            [],
        )
