"""Objects in memory, until you write them down."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator

from blumfeld.spi.object_store import ObjectExistsError, ObjectInfo, ObjectNotFoundError
from blumfeld.spi.runtime import Runtime


class Bucket:
    """Where the objects lie. Called in worker threads, several at once. WRITE HERE.

    Every failure is a ``StoreError``; of these ``StoreUnavailableError`` and ``StoreDeniedError`` are tried again.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._objects: dict[str, tuple[bytes, int]] = {}
        self._lock = threading.Lock()

    def put(self, key: str, data: bytes, now_ms: int, if_absent: bool) -> None:
        """Write one whole object. Readers see all of it or nothing."""
        with self._lock:
            if if_absent and key in self._objects:
                raise ObjectExistsError(f"{key} is in {self._name}")
            self._objects[key] = data, now_ms

    def read(self, key: str) -> tuple[bytes, int]:
        """Return the bytes and the time of an object."""
        try:
            return self._objects[key]
        except KeyError:
            raise ObjectNotFoundError(f"{key} is not in {self._name}") from None

    def list(self, prefix: str) -> list[ObjectInfo]:
        """Return the objects whose keys begin with ``prefix``, folder by folder."""
        with self._lock:
            found = [ObjectInfo(key, len(data), at) for key, (data, at) in self._objects.items()]
        found.sort(key=lambda info: info.key.split("/"))
        return [info for info in found if info.key.startswith(prefix)]

    def delete(self, key: str) -> None:
        """Remove an object. It may be absent."""
        self._objects.pop(key, None)


class AcmeObjectStore:
    """``ObjectStore``: what takes time goes to a worker thread, so that the broker's loop goes on."""

    def __init__(self, runtime: Runtime, bucket: str) -> None:
        self._runtime = runtime
        self._bucket = Bucket(bucket)

    async def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        """Write one object."""
        now_ms = self._runtime.now_ms()
        await self._runtime.offload(self._bucket.put, key, bytes(data), now_ms, if_absent)

    async def put_parts(self, key: str, parts: AsyncIterator[bytes]) -> None:
        """Write one object from parts. Nothing of it is seen before the last one is in."""
        await self.put(key, b"".join([part async for part in parts]))

    async def get_range(self, key: str, start: int, size: int) -> bytes:
        """Return a part of an object; fewer bytes than ``size`` only at its end."""
        data, _ = await self._runtime.offload(self._bucket.read, key)
        return data[start : start + size]

    async def head(self, key: str) -> ObjectInfo:
        """Return an object's size and time."""
        data, modified_ms = await self._runtime.offload(self._bucket.read, key)
        return ObjectInfo(key, len(data), modified_ms)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """Yield the objects whose keys begin with ``prefix``."""
        for info in await self._runtime.offload(self._bucket.list, prefix):
            yield info

    async def delete(self, key: str) -> None:
        """Remove an object. It may be absent."""
        await self._runtime.offload(self._bucket.delete, key)

    async def close(self) -> None:
        """Give back what is open."""
