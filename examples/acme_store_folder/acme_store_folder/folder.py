"""Objects as files of ``runtime.files``, written and read by workers while the loop goes on."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import TypeVar

from blumfeld.spi.object_store import (
    ObjectExistsError,
    ObjectInfo,
    ObjectNotFoundError,
    StoreDeniedError,
    StoreUnavailableError,
)
from blumfeld.spi.runtime import File, Runtime

T = TypeVar("T")


class FolderStore:
    """``ObjectStore``: each object is a file below ``root``."""

    def __init__(self, runtime: Runtime, root: str, part_file: str) -> None:
        self._runtime = runtime
        self._files = runtime.files
        self._root = root
        self._part_file = part_file
        self._changing = asyncio.Lock()  # between "is it there?" and the rename nobody else may come
        self._uploads = 0

    async def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        """Write the bytes beside the object's place, then rename."""
        part = self._part(key)
        await self._work(key, lambda: self._append(part, 0, data))
        await self._place(part, key, if_absent)

    async def put_parts(self, key: str, parts: AsyncIterator[bytes]) -> None:
        """Append the parts to a file that nobody lists, then rename."""
        part, position = self._part(key), 0
        try:
            await self._work(key, lambda: self._append(part, 0, b""))
            async for data in parts:
                at = position
                await self._work(key, lambda at=at, data=data: self._append(part, at, data))  # type: ignore[misc]
                position += len(data)
        except BaseException:
            with suppress(OSError):
                self._files.unlink(part)
            raise
        await self._place(part, key, if_absent=False)

    async def _place(self, part: str, key: str, if_absent: bool) -> None:
        path = self._path(key)

        def rename() -> bool:
            if if_absent and self._files.exists(path):
                self._files.unlink(part)
                return False
            self._files.rename(part, path)
            folder = path
            while folder:  # each folder may be new, and its name lies in the one above
                folder = folder.rpartition("/")[0]
                self._files.sync_dir(folder or "/")
            return True

        async with self._changing:
            if not await self._work(key, rename):
                raise ObjectExistsError(f"{path} is there")

    async def get_range(self, key: str, start: int, size: int) -> bytes:
        """Read by a worker."""

        def read() -> bytes:
            file = self._open(key)
            try:
                return file.pread(max(0, min(size, file.size() - start)), start)
            finally:
                file.close()

        return await self._work(key, read)

    async def local_file(self, key: str) -> str:
        """As ``LocalObjectStore``: a folder of this machine's own disk is read in place. A put renames a new file."""
        return self._path(key)

    async def head(self, key: str) -> ObjectInfo:
        """Ask for the file's size and time."""
        return await self._work(key, lambda: self._info(key))

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """Walk through the folders, then sort."""
        folder = prefix.rpartition("/")[0]
        for key in sorted(await self._work(prefix, lambda: [*self._walk(folder)])):
            if key.startswith(prefix):
                with suppress(ObjectNotFoundError):  # deleted meanwhile
                    yield await self.head(key)

    async def delete(self, key: str) -> None:
        """Remove the file."""
        with suppress(ObjectNotFoundError):
            await self._work(key, lambda: self._files.unlink(self._path(key)))

    async def close(self) -> None:
        """Nothing is open between two calls."""

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"

    def _part(self, key: str) -> str:
        self._uploads += 1
        return f"{self._path(key)}.{self._uploads}{self._part_file}"

    def _append(self, path: str, position: int, data: bytes) -> None:
        if position == 0:
            self._files.make_dirs(path.rpartition("/")[0])
        file = self._files.open(path, create=True)
        try:
            done = 0
            while done < len(data):
                done += file.pwritev([memoryview(data)[done:]], position + done)
            file.truncate(position + len(data))
            file.fdatasync()
        finally:
            file.close()

    def _open(self, key: str) -> File:
        path = self._path(key)
        if self._files.is_dir(path):
            raise IsADirectoryError(path)
        return self._files.open(path, write=False)

    def _info(self, key: str) -> ObjectInfo:
        file = self._open(key)
        try:
            return ObjectInfo(key, file.size(), self._files.modified_ms(file.path))
        finally:
            file.close()

    def _walk(self, folder: str) -> list[str]:
        path = self._path(folder).rstrip("/")
        if not self._files.is_dir(path):
            return []
        keys: list[str] = []
        for name in self._files.list_dir(path):
            key = f"{folder}/{name}" if folder else name
            if self._files.is_dir(f"{path}/{name}"):
                keys += self._walk(key)
            elif not name.endswith(self._part_file):
                keys.append(key)
        return keys

    async def _work(self, key: str, work: Callable[[], T]) -> T:
        try:
            return await self._runtime.offload(work)
        except FileNotFoundError:
            raise ObjectNotFoundError(f"{self._path(key)} is not there") from None
        except (IsADirectoryError, NotADirectoryError):
            raise ObjectNotFoundError(f"{self._path(key)} is no file") from None
        except OSError as error:
            kind = StoreDeniedError if error.errno in (errno.EACCES, errno.EROFS) else StoreUnavailableError
            raise kind(f"{self._path(key)}: {error.strerror}") from None
