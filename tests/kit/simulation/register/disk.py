"""The state of one node on its disk: a file of records, the last whole one of which counts."""

from __future__ import annotations

import zlib

import msgspec

from blumfeld.spi.runtime import File, Runtime


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """All that a node must not forget."""

    promised: int = 0
    """No leader of an older epoch is obeyed."""
    epoch: int = 0
    """Epoch of the leader that gave the value."""
    version: int = 0
    value: str | None = None


class AcceptedFile:
    """Appends the state each time it changes."""

    def __init__(self, runtime: Runtime, path: str) -> None:
        self._runtime = runtime
        self._path = path
        self._file: File | None = None
        self._end = 0

    async def open(self) -> Accepted:
        """Return the state. What a power cut tore at the end is cut off."""
        self._file = file = self._runtime.files.open(self._path, create=True)
        self._runtime.files.sync_dir(self._path.rpartition("/")[0])
        data = file.pread(file.size(), 0)
        state = Accepted()
        while len(record := data[self._end :]) >= 8:
            size, crc = int.from_bytes(record[:4], "big"), int.from_bytes(record[4:8], "big")
            body = record[8 : 8 + size]
            if not size or len(body) < size or zlib.crc32(body) != crc:
                break
            state = msgspec.json.decode(body, type=Accepted)
            self._end += 8 + size
        file.truncate(self._end)
        await self._runtime.offload(file.fdatasync)
        return state

    async def write(self, state: Accepted, *, sync: bool = True) -> None:
        """Append the state. :raises OSError: nothing is promised"""
        assert self._file is not None
        body = msgspec.json.encode(state)
        data = len(body).to_bytes(4, "big") + zlib.crc32(body).to_bytes(4, "big") + body
        if self._file.pwritev([data], self._end) != len(data):
            raise OSError("short write")
        self._end += len(data)
        if sync:
            await self._runtime.offload(self._file.fdatasync)
