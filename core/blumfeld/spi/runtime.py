"""The runtime seam: everything that a broker may ask of the world. A simulation replaces it, and nothing else.

No code outside the named edge modules reads a clock, draws a random number, opens a file or starts a thread
but through this.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from enum import IntEnum
from typing import Any, Protocol, TypeVar

from blumfeld.spi.completion import Completion
from blumfeld.spi.parts import FileRegion
from blumfeld.spi.scheduler import Scheduler

T = TypeVar("T")


class NodeFailure(Exception):  # noqa: N818 - the noun says what it is
    """Raised from a task when the node can't go on and no defect is the reason. Its text says why."""


class Phase(IntEnum):
    """The order of the end of a turn (docs/design.md, "The turn")."""

    WRITE = 0
    """Storage writes what was placed. Written ends move; what waited for them is completed."""
    HIGH_WATERMARK = 1
    """Replication moves high watermarks."""
    COMPLETE = 2
    """Purgatory and coordinators. They may place again: the runtime goes back to WRITE, at most TURN_ROUNDS_MAX
    times.
    """
    ANSWER = 3
    """Transports send. Runs once, after the other phases came to rest (or their bound was reached)."""


TURN_ROUNDS_MAX = 16
"""Rounds of WRITE, HIGH_WATERMARK, COMPLETE in one turn; what is left then has its own turn, after the answers.
"""


class Timer(Protocol):
    """A callback that will be called later, unless cancelled."""

    def cancel(self) -> None:
        """It will not be called any more. May be called twice, and after it fired."""
        ...


class Task(Protocol):
    """A running coroutine."""

    def cancel(self) -> bool:
        """Ask it to end; it ends at its next await."""
        ...

    def done(self) -> bool:
        """Whether it has ended."""
        ...


class Random(Protocol):
    """The only source of chance. Seeded in a simulation."""

    def random(self) -> float:
        """A float in [0, 1)."""
        ...

    def randrange(self, stop: int, /) -> int:
        """An integer in [0, stop)."""
        ...

    def randbytes(self, n: int, /) -> bytes:
        """``n`` random bytes."""
        ...


class File(Protocol):
    """One open file. All methods raise ``OSError``; after a simulated crash every handle of the old incarnation
    does.
    """

    path: str

    def pread(self, size: int, position: int) -> bytes:
        """Return at most ``size`` bytes, and fewer only at the end of the file."""
        ...

    def pwritev(self, buffers: Sequence[bytes | bytearray | memoryview], position: int) -> int:
        """Write the buffers one after the other at ``position``; the bytes written, maybe fewer than asked.

        At most ``IOV_MAX`` (1024) buffers. In the page cache when it returns: seen by every reader, lost in a
        power cut.
        """
        ...

    def fdatasync(self) -> None:
        """Bytes and size are on the device when it returns. Blocks: call it through ``Runtime.offload``."""
        ...

    def truncate(self, size: int) -> None:
        """Cut, or extend with zeros."""
        ...

    def reserve(self, size: int) -> None:
        """Reserve space on the device for the first ``size`` bytes. The file's size and its bytes stay as they are.

        :meth:`truncate` gives back what lies behind the new size. Raises EOPNOTSUPP where the file system can't.
        """
        ...

    def size(self) -> int:
        """Bytes."""
        ...

    def mmap_read(self) -> memoryview:
        """The whole file, read-only; for sealed files, which no one changes any more."""
        ...

    def is_cached(self, position: int, size: int) -> bool:
        """Whether to read these bytes would not wait for a device, as far as a look at their ends can tell.

        Never blocks. ``True`` where the operating system can't say.
        """
        ...

    def tells_cached(self) -> bool:
        """Whether :meth:`is_cached` knows. Not on file systems of another machine (NFS, FUSE), nor on macOS."""
        ...

    def read_ahead(self, position: int, size: int) -> None:
        """Bring these bytes into the page cache. Blocks: call it through ``Runtime.offload``."""
        ...

    def region(self, position: int, size: int) -> FileRegion:
        """A part for an answer. The file stays open, also after :meth:`close`, until the region is released."""
        ...

    def close(self) -> None:
        """Give the descriptor back once no region holds it. May be called twice.

        What a worker does meanwhile (``pread``, ``fdatasync``, ``read_ahead``) goes on as long as a region is held.
        """
        ...


class Files(Protocol):
    """The narrow file API. Paths are ``str``. Every method raises ``OSError`` as the operating system would."""

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, write: bool = True) -> File:
        """Open for reading and, unless ``write=False``, writing. Never truncates."""
        ...

    def read_bytes(self, path: str) -> bytes:
        """A small file, whole."""
        ...

    def write_atomically(self, path: str, data: bytes) -> None:
        """Replace a small file: write ``path + ".tmp"``, fsync it, rename, fsync the directory."""
        ...

    def exists(self, path: str) -> bool:
        """Whether a file or directory is there."""
        ...

    def is_dir(self, path: str) -> bool:
        """Whether a directory is there."""
        ...

    def list_dir(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        ...

    def make_dirs(self, path: str) -> None:
        """Make a directory and its parents; it may exist."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Atomic; replaces ``new``. Lasting only after ``sync_dir`` of its directory."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all in it; it may be absent."""
        ...

    def sync_dir(self, path: str) -> None:
        """Names in this directory are on the device when it returns."""
        ...

    def modified_ms(self, path: str) -> int:
        """Time of the last change, ms since the epoch."""
        ...

    def mode(self, path: str) -> int:
        """Permission bits (``0o600``): a file with secrets is refused if other users of the machine may read it."""
        ...

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        """Set that time: for a segment rewritten by the cleaner."""
        ...

    def space(self, path: str) -> tuple[int, int]:
        """(total, usable) bytes of the file system that holds ``path``."""
        ...

    def lock(self, path: str) -> Callable[[], None]:
        """Hold a lock file exclusively; gives back the function that releases it.

        :raises OSError: (``EWOULDBLOCK``) another process holds it
        """
        ...


class Runtime(Protocol):
    """The runtime that every part of a node is handed. Each node has one, and one thread: the loop's."""

    random: Random
    files: Files
    scheduler: Scheduler
    """Runs work that may take longer than a few milliseconds, a little in each turn."""

    def now_ms(self) -> int:
        """Wall clock, ms since the epoch. May jump."""
        ...

    def monotonic_ms(self) -> float:
        """A clock for durations, in ms with fraction. Never goes back."""
        ...

    def secrets(self, n: int) -> bytes:
        """``n`` bytes that nobody can guess: salts, nonces, tokens. In a simulation they come from the seed."""
        ...

    def new_uuid(self) -> bytes:
        """16 random bytes that make a legal Kafka ``Uuid``: not reserved, its text without a leading '-'."""
        ...

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Call ``callback()`` on the loop in ``delay_ms``; 0 means the next turn."""
        ...

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> Task:
        """Run a coroutine as a task. An exception that escapes is logged and stops the node: it is a defect, but for a
        ``NodeFailure``.
        """
        ...

    def offload(self, work: Callable[..., T], *args: Any) -> Awaitable[T]:
        """Run what may block in a worker thread (in the simulation: at once). ``work`` touches no state of the
        loop.
        """
        ...

    def offload_process(self, work: Callable[..., Generator[float, float, T]], *args: Any) -> Awaitable[T]:
        """Run ``work(files, *args)`` in a process of its own (in the simulation: on virtual time and the node's files).

        For what computes long: a thread would take the interpreter from the loop. ``work`` is a module's generator
        function; arguments, result and exceptions are plain values that can be pickled. Between its steps, which
        should take some milliseconds, it may be ended: it yields the seconds that it wants to pause, mostly 0, and is
        sent the monotonic clock in seconds. One piece of work at a time, in order; the process ends with this one,
        whatever ends it. To cancel the awaitable ends the work where it is, and no file is changed after the next
        piece of work has begun.

        :raises OSError: the worker died, or could not be started
        """
        ...

    def at_end_of_turn(self, phase: Phase, callback: Callable[[], None]) -> None:
        """Call ``callback()`` once in ``phase`` at the end of this turn, in order of registration within a
        phase.

        Registering for a phase that has passed makes another round, bounded by ``TURN_ROUNDS_MAX``.
        """
        ...

    def in_thread(self, callback: Callable[[], None]) -> None:
        """Call ``callback()`` on the loop soon. This is the only method that another thread may call."""
        ...


def pause(runtime: Runtime, pause_ms: float) -> Completion[None]:
    """Return what completes in ``pause_ms``."""
    over: Completion[None] = Completion()
    runtime.call_later(pause_ms, lambda: over.complete(None))
    return over
