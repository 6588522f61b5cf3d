"""A store that is used only when it is known to be this cluster's own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from blumfeld.spi.object_store import (
    ObjectBytes,
    ObjectInfo,
    ObjectStore,
    StoreError,
    StoreUnavailableError,
    local_file,
)
from blumfeld.spi.runtime import Files, Runtime
from blumfeld_storage_tiered.stores.checking import check_marker, check_store


class ClaimedStore:
    """``ObjectStore`` around another.

    A store that is away when a node starts may turn out to be another cluster's, whose segments would be garbage to us:
    so no request is made before the check has succeeded. The first request makes the check where the start couldn't,
    and may raise what ``check_store`` raises.

    :param used_file: a file of this node with the store that it has used. That store is
        never taken for a new one: its folder may not be mounted. Remove the file to begin with an empty store
    """

    def __init__(
        self, runtime: Runtime, store: ObjectStore, shown: str, used_file: str | None = None
    ) -> None:
        self._used_file = used_file
        self._runtime = runtime
        self._store = store
        self._shown = shown
        self._cluster_id: str | None = None
        self._is_ours = False
        self._checking = asyncio.Lock()
        self.requests: Counter[str] = Counter()
        """Calls by the method's name."""
        self.errors: Counter[str] = Counter()
        """Those that failed. An object that isn't there is an error, too."""

    async def claim(self, cluster_id: str) -> None:
        """Check the store for this cluster. After a ``StoreUnavailableError`` the next request tries again."""
        self._cluster_id = cluster_id
        await self._ours()

    async def still_ours(self) -> None:
        """Look whether the marker is there.

        :raises StoreUnavailableError: it isn't: a folder isn't mounted, or somebody has emptied the store
        """
        await check_marker(self, self._shown)

    async def _ours(self) -> ObjectStore:
        if self._is_ours:
            return self._store
        async with self._checking:
            if not self._is_ours:
                if self._cluster_id is None:
                    raise StoreUnavailableError(f"{self._shown} was not claimed yet: the node starts")
                await self._check(self._cluster_id)
                self._is_ours = True
        return self._store

    async def _check(self, cluster_id: str) -> None:
        offload, files, used = self._runtime.offload, self._runtime.files, self._used_file
        ours = f"{cluster_id} {self._shown}\n".encode()
        before = b"" if used is None else await offload(_content, files, used)
        await check_store(self._runtime, self._store, cluster_id, self._shown, may_be_new=before != ours)
        if used is not None and before != ours:
            await offload(_replace, files, used, ours)

    @contextmanager
    def _counted(self, operation: str) -> Iterator[None]:
        self.requests[operation] += 1
        try:
            yield
        except StoreError:
            self.errors[operation] += 1
            raise

    async def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        """As ``ObjectStore.put``."""
        with self._counted("put"):
            await (await self._ours()).put(key, data, if_absent=if_absent)

    async def put_parts(self, key: str, parts: AsyncIterator[bytes]) -> None:
        """As ``ObjectStore.put_parts``."""
        with self._counted("put_parts"):
            await (await self._ours()).put_parts(key, parts)

    async def get_range(self, key: str, start: int, size: int) -> ObjectBytes:
        """As ``ObjectStore.get_range``."""
        with self._counted("get_range"):
            return await (await self._ours()).get_range(key, start, size)

    async def local_file(self, key: str) -> str | None:
        """As ``LocalObjectStore.local_file``; ``None`` where the store is no such one."""
        return await local_file(await self._ours(), key)

    async def head(self, key: str) -> ObjectInfo:
        """As ``ObjectStore.head``."""
        with self._counted("head"):
            return await (await self._ours()).head(key)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """As ``ObjectStore.list``."""
        with self._counted("list"):
            async for info in (await self._ours()).list(prefix):
                yield info

    async def delete(self, key: str) -> None:
        """As ``ObjectStore.delete``."""
        with self._counted("delete"):
            await (await self._ours()).delete(key)

    async def close(self) -> None:
        """As ``ObjectStore.close``."""
        await self._store.close()


def _content(files: Files, path: str) -> bytes:
    return files.read_bytes(path) if files.exists(path) else b""


def _replace(files: Files, path: str, content: bytes) -> None:
    folder = path.rpartition("/")[0]
    if not files.exists(folder):
        # The local storage starts later, and takes a folder that is there for a durable one.
        files.make_dirs(folder)
        files.sync_dir(folder.rpartition("/")[0] or "/")
    files.write_atomically(path, content)
