"""Replaces one small file beside the log, off the loop and in order."""

from __future__ import annotations

from blumfeld.spi.completion import Completion
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.storage import AuxFiles


class AuxFileWriter:
    """Writes the newest content of one file. A write that has not begun is left out when a newer one comes.

    A sync on a busy device takes tens of milliseconds, so it must not hold the loop.
    """

    def __init__(self, runtime: Runtime, aux: AuxFiles, name: str) -> None:
        self._runtime = runtime
        self._aux = aux
        self._name = name
        self._next: bytes | None = None
        self._waiting: list[Completion[None]] = []
        """Writes that have not begun. ``_next`` is the content of the last one."""
        self._running = False

    def write(self, data: bytes) -> Completion[None]:
        """Replace the file.

        The completion is delivered when this content is on the device, or a later one in its place. It fails with the
        ``OSError`` of that write. Then the file has its old content or the new one, never a part.
        """
        done: Completion[None] = Completion()
        self._next = data
        self._waiting.append(done)
        if not self._running:
            self._running = True
            self._runtime.spawn(self._run(), f"write {self._name}")
        return done

    async def _run(self) -> None:
        while self._next is not None:
            data, waiting = self._next, self._waiting
            self._next, self._waiting = None, []
            failed: OSError | None = None
            try:
                await self._runtime.offload(self._aux.write, self._name, data)
            except OSError as error:
                failed = error
            for done in waiting:
                if failed is None:
                    done.complete(None)
                else:
                    done.fail(failed)
        self._running = False
