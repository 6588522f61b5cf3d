"""The object store on obstore. obstore's own threads do all input and output, and tell the loop of each end: no thread
of ``Runtime.offload`` waits for a store, but one at a time for the disk under a ``file://`` store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from blumfeld.spi.object_store import (
    ObjectBytes,
    ObjectInfo,
    ObjectNotFoundError,
    StoreMisconfiguredError,
    StoreUnavailableError,
)
from blumfeld.spi.runtime import Files, Runtime
from blumfeld_storage_tiered.stores.failures import is_behind_the_end, store_error
from blumfeld_storage_tiered.stores.options import RequestOptions

T = TypeVar("T")

PART_BYTES = 8 << 20
"""Bytes of one request of a multipart upload."""
PARTS_AT_ONCE = 2
"""Parts of one upload that are sent at the same time. An upload holds one more in memory."""
COPY_BYTES = 1 << 20
"""obstore copies what it is given on the loop's thread: 8 MiB at once would hold the loop for 2 ms."""
LIST_PAGE = 1000
NAME_MAX = 255
"""Bytes of a name that file systems take."""
CONTINUED = "~"
ABORT_MS = 5_000
"""Bound on the request that forgets a failed upload. What it doesn't reach, a lifecycle rule of the bucket removes."""


class ObstoreStore:
    """``ObjectStore`` on an opened store of obstore.

    A call is bounded by ``RequestOptions.call_timeout_ms``; an upload and a listing by that for each part and page. A
    failed multipart upload is aborted; where the abort fails too, its parts lie unseen in the bucket.

    :param inner: one of obstore's stores
    :param shown: the store for people
    :param sorts: obstore lists it in no order
    """

    def __init__(self, inner: Any, requests: RequestOptions, shown: str, *, sorts: bool) -> None:
        import obstore
        from obstore.exceptions import BaseError

        self._obstore = obstore
        self._errors = (BaseError, OSError, NotImplementedError)
        self._inner = inner
        self._timeout_ms = requests.call_timeout_ms
        self._shown = shown
        self._sorts = sorts

    async def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        """As ``ObjectStore.put``."""
        mode = "create" if if_absent else "overwrite"
        await self._call(
            "put",
            key,
            lambda: self._obstore.put_async(self._opened(), key, data, mode=mode, use_multipart=False),
        )

    async def put_parts(self, key: str, parts: AsyncIterator[bytes]) -> None:
        """As ``ObjectStore.put_parts``."""
        writer = await self._call("put", key, lambda: self._writer(key))
        try:
            async for part in parts:
                view = memoryview(part)
                for at in range(0, len(part), COPY_BYTES):
                    await self._call("put", key, partial(writer.write, view[at : at + COPY_BYTES]))
            await self._call("put", key, writer.close)
        except BaseException as error:
            await self._abort(writer, error)
            raise

    async def _writer(self, key: str) -> Any:
        return self._obstore.open_writer_async(
            self._opened(), key, buffer_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE
        )

    async def _abort(self, writer: Any, error: BaseException) -> None:
        try:
            async with asyncio.timeout(ABORT_MS / 1000):
                await writer.__aexit__(type(error), error, None)
        except self._errors:
            return  # the upload's own error is the one to tell

    async def get_range(self, key: str, start: int, size: int) -> ObjectBytes:
        """As ``ObjectStore.get_range``."""
        if size <= 0:
            await self.head(key)
            return b""
        return memoryview(await self._call("get", key, lambda: self._range(key, start, size)))

    async def _range(self, key: str, start: int, size: int) -> Any:
        try:
            return await self._obstore.get_range_async(self._opened(), key, start=start, length=size)
        except self._errors as error:
            if not is_behind_the_end(error):
                raise
            return b""

    async def head(self, key: str) -> ObjectInfo:
        """As ``ObjectStore.head``. The answer to HEAD has no body: a bucket that isn't there looks like an object that
        isn't."""
        return _info(await self._call("head", key, lambda: self._obstore.head_async(self._opened(), key)))

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """As ``ObjectStore.list``. obstore takes folders alone; the rest of the prefix is looked at here."""
        stream = await self._call("list", prefix, lambda: self._listing(prefix.rpartition("/")[0]))
        unsorted: list[ObjectInfo] = []
        last = ""
        while (page := await self._call("list", prefix, partial(_next_page, stream))) is not None:
            infos = [info for info in map(_info, page) if info.key.startswith(prefix)]
            if self._sorts:
                unsorted += infos
                continue
            for info in infos:
                if info.key < last and info.key.rpartition("/")[0] == last.rpartition("/")[0]:
                    mistake = f"{info.key} listed behind {last}"
                    raise StoreMisconfiguredError(f"list {prefix} in {self._shown}: {mistake}, out of order")
                last = info.key
                yield info
        for info in sorted(unsorted):
            yield info

    async def delete(self, key: str) -> None:
        """As ``ObjectStore.delete``."""
        try:
            await self._call("delete", key, lambda: self._obstore.delete_async(self._opened(), key))
        except ObjectNotFoundError:
            return

    async def close(self) -> None:
        """As ``ObjectStore.close``: obstore closes connections when nobody holds the store."""
        self._inner = None

    def _opened(self) -> Any:
        return self._inner

    async def _listing(self, folder: str) -> Any:
        return self._obstore.list(self._opened(), folder or None, chunk_size=LIST_PAGE)

    async def _call(self, operation: str, key: str, request: Callable[[], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                return await request()
        except TimeoutError:
            mistake = f"no answer in {self._timeout_ms} ms"
            raise StoreUnavailableError(f"{operation} {key} in {self._shown}: {mistake}") from None
        except self._errors as error:
            # "from None": a traceback would show the texts of obstore, which have answers and URLs in them.
            raise store_error(error, operation, key, self._shown) from None


class FileStore(ObstoreStore):
    """A folder of this machine. What was put is on the device when the put returns, though obstore doesn't see to it.

    One object at a time is made durable, so that three of the four threads of ``Runtime.offload`` stay free. A file
    system takes names of up to 255 bytes, and the folder of a partition may have 283: :func:`path_of_key`.
    """

    def __init__(
        self, requests: RequestOptions, shown: str, runtime: Runtime, root: str, *, read_in_place: bool = True
    ) -> None:
        super().__init__(None, requests, shown, sorts=True)
        self._runtime = runtime
        self._root = root
        self._syncing = asyncio.Lock()
        self._root_is_durable = False
        """Whether the folders above the root were synced since the start."""
        self._in_place: bool | None = None if read_in_place else False
        """Whether objects are read in place. ``None``: as soon as it is known whether the file system tells what is in
        the page cache."""

    async def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        """As ``ObjectStore.put``."""
        await super().put(path_of_key(key), data, if_absent=if_absent)
        await self._sync(path_of_key(key))

    async def put_parts(self, key: str, parts: AsyncIterator[bytes]) -> None:
        """As ``ObjectStore.put_parts``."""
        await super().put_parts(path_of_key(key), parts)
        await self._sync(path_of_key(key))

    async def get_range(self, key: str, start: int, size: int) -> ObjectBytes:
        """As ``ObjectStore.get_range``."""
        return await super().get_range(path_of_key(key), start, size)

    async def head(self, key: str) -> ObjectInfo:
        """As ``ObjectStore.head``."""
        return replace(await super().head(path_of_key(key)), key=key)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """As ``ObjectStore.list``."""
        folder, slash, _ = prefix.rpartition("/")
        infos = [
            replace(info, key=key)
            async for info in super().list(path_of_key(folder) + slash)
            if (key := key_of_path(info.key)).startswith(prefix)
        ]
        for info in sorted(infos):
            yield info

    async def delete(self, key: str) -> None:
        """As ``ObjectStore.delete``. The folder goes with its last object."""
        await super().delete(path_of_key(key))

    async def local_file(self, key: str) -> str | None:
        """As ``LocalObjectStore.local_file``. A folder of another machine (NFS, FUSE) has no such files."""
        path = f"{self._root}/{path_of_key(key)}"
        if self._in_place is None:
            self._in_place = await self._runtime.offload(_tells_cached, self._runtime.files, path)
        return None if self._in_place is False else path

    async def _sync(self, key: str) -> None:
        async with self._syncing:
            offload, files = self._runtime.offload, self._runtime.files
            top = self._root if self._root_is_durable else ""
            await self._call("put", key, lambda: offload(_make_durable, files, f"{self._root}/{key}", top))
            self._root_is_durable = True

    def _opened(self) -> Any:
        """Make the folder when it is first used: a plan makes a store, and must leave nothing behind."""
        if self._inner is None:
            from obstore.store import LocalStore

            self._inner = LocalStore(self._root, mkdir=True, automatic_cleanup=True)
        return self._inner


def path_of_key(key: str) -> str:
    """Return the path of an object below the store's folder. A part of it that is too long for a name goes on in a
    folder of its own, behind a ``~``, which no key has: a partition's folder of 283 characters is two."""
    if len(key) <= NAME_MAX:
        return key
    parts = []
    for part in key.split("/"):
        while len(part) > NAME_MAX:
            parts.append(part[: NAME_MAX - 1] + CONTINUED)
            part = part[NAME_MAX - 1 :]
        parts.append(part)
    return "/".join(parts)


def key_of_path(path: str) -> str:
    """Return the key of an object at this path: the inverse of :func:`path_of_key`."""
    return path.replace(f"{CONTINUED}/", "")


def _tells_cached(files: Files, path: str) -> bool | None:
    """Whether the file system of a file tells what is in the page cache; ``None`` if that can't be found out now."""
    try:
        file = files.open(path, write=False)
        try:
            return file.tells_cached()
        finally:
            file.close()
    except OSError:
        return None


def _make_durable(files: Files, path: str, top: str) -> None:
    """Sync a file, and the folders from its own up to ``top``: each may be new, and its name lies in the one above."""
    file = files.open(path, write=False)
    try:
        file.fdatasync()
    finally:
        file.close()
    folder = path
    while folder != top:
        folder = folder.rpartition("/")[0]
        files.sync_dir(folder or "/")


async def _next_page(stream: Any) -> Sequence[Any] | None:
    try:
        page: Sequence[Any] = await stream.__anext__()
    except StopAsyncIteration:
        return None
    return page


def _info(meta: Any) -> ObjectInfo:
    return ObjectInfo(meta["path"], meta["size"], int(meta["last_modified"].timestamp() * 1000))
