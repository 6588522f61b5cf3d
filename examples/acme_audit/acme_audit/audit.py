"""Lines of JSON, appended to a file by a worker while the loop goes on."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from blumfeld.spi.observer import RequestSeen
from blumfeld.spi.runtime import File, Runtime
from blumfeld.wire.api import API_BY_KEY


class Audit:
    """``Observer``: what it is told of it keeps in memory, and has written in the background."""

    def __init__(
        self, runtime: Runtime, path: str, apis: Sequence[int] | None, lines_waiting_max: int
    ) -> None:
        self.written = self.lost = 0
        self._runtime = runtime
        self._path = path
        self._apis = None if apis is None else frozenset(apis)
        self._lines_waiting_max = lines_waiting_max
        self._waiting: list[bytes] = []
        self._file: File | None = None
        self._size = 0
        self._writing = False

    async def start(self) -> None:
        """Open the file, to write behind what is there.

        :raises OSError: it can't be opened: a broker that should be audited does not start without
        """

        def open_it() -> tuple[File, int]:
            file = self._runtime.files.open(self._path, create=True)
            return file, file.size()

        self._file, self._size = await self._runtime.offload(open_it)

    def requests(self, seen: Sequence[RequestSeen]) -> None:
        """A line for each."""
        for request in seen:
            if self._apis is None or request.api_key in self._apis:
                self._add(_line(request))

    def event(self, what: str, name: str) -> None:
        """A line for something rare."""
        self._add({"time_ms": self._runtime.now_ms(), "event": what, "name": name})

    def _add(self, line: dict[str, object]) -> None:
        if len(self._waiting) >= self._lines_waiting_max:
            self.lost += 1
            return
        self._waiting.append(msgspec.json.encode(line) + b"\n")
        if not self._writing and self._file is not None:
            self._writing = True
            self._runtime.spawn(self._write(), "audit")

    async def _write(self) -> None:
        try:
            while self._waiting and self._file is not None:
                lines, self._waiting = self._waiting, []
                data = b"".join(lines)
                try:
                    await self._runtime.offload(self._append, self._file, data)
                except OSError:
                    self.lost += len(lines)  # no room: the next line goes where this one should be
                else:
                    self._size += len(data)
                    self.written += len(lines)
        finally:
            self._writing = False

    def _append(self, file: File, data: bytes) -> None:
        done = 0
        while done < len(data):
            done += file.pwritev([data[done:]], self._size + done)

    async def stop(self) -> None:
        """Write what is left, and close."""
        while self._writing or (self._waiting and self._file is not None):
            if not self._writing:
                self._writing = True
                await self._write()
            await self._runtime.offload(lambda: None)
        if self._file is not None:
            self._file.close()
            self._file = None


def _line(request: RequestSeen) -> dict[str, object]:
    info = API_BY_KEY.get(request.api_key)
    line = msgspec.structs.asdict(request)
    line["client_id"] = request.client_id.encode("utf-8", "backslashreplace").decode()
    line["api"] = None if info is None else info.name
    return line
