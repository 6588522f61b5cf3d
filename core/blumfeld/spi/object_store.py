"""Object stores: where a storage keeps what is too old, or too much, for its own disks (S3, GCS, Azure, a folder).

A store is narrow on purpose: whole objects, ranges of them, a listing. It knows nothing of segments. A third party's
store passes ``blumfeld_kit.ObjectStoreContract``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Protocol, TypeAlias, cast

import msgspec

from blumfeld.spi.runtime import Runtime


class StoreError(Exception):
    """A request to an object store failed. :attr:`retriable` says whether the same request may succeed later."""

    retriable = True


class StoreUnavailableError(StoreError):
    """The store can't be reached, took too long, asked for fewer requests (503, throttling) or failed inside. Whether a
    change took place isn't known: the answer may be lost after it did."""


class ObjectNotFoundError(StoreError):
    """There is no object of this name. A store that lists late may still list it."""

    retriable = False


class ObjectExistsError(StoreError):
    """``put(if_absent=True)`` found an object of this name."""

    retriable = False


class StoreDeniedError(StoreError):
    """The credentials are unknown, have expired, or don't allow the request. They can be renewed, so try again."""


class StoreMisconfiguredError(StoreError):
    """The bucket isn't there, or the URL or an option can't be used. No later request succeeds."""

    retriable = False


class ObjectInfo(msgspec.Struct, frozen=True, order=True):
    """The facts about one object."""

    key: str
    size_bytes: int
    modified_ms: int
    """By the store's clock, which may differ from ours."""


ObjectBytes: TypeAlias = bytes | memoryview
"""Bytes that were read. A view is of memory that nobody changes: to copy 4 MiB to a ``bytes`` would hold the loop for
2 ms."""


class ObjectStore(Protocol):
    """One bucket, or one prefix of a bucket. Keys are relative to it: ASCII, parts joined by ``/``, none empty. No key
    is the folder of another one, so a store can be a file system.

    Every method runs on the loop and never blocks it. Every method may raise any :class:`StoreError`, within
    a time that the store bounds. A cancelled call may or may not have taken place. Calls may overlap.
    """

    async def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        """Write one object, replacing another of its name. A reader sees all of it or none, at once.

        :raises ObjectExistsError: ``if_absent``, and there is one. After a lost answer it may be our own
        """
        ...

    async def put_parts(self, key: str, parts: AsyncIterator[bytes]) -> None:
        """Write one object from parts that come one after the other (multipart upload), so that memory is bounded.

        No reader sees it before the last part is in. If ``parts`` raises, or this is cancelled, nothing is seen.
        """
        ...

    async def get_range(self, key: str, start: int, size: int) -> ObjectBytes:
        """Return ``size`` bytes of an object from ``start`` on; fewer only at its end."""
        ...

    async def head(self, key: str) -> ObjectInfo:
        """Return the facts about one object."""
        ...

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """Yield every object whose key begins with ``prefix``. What lies in or below one folder comes together, and the
        objects of a folder in the order of their keys; the order of folders isn't said (servers on top of a file
        system have another one than Amazon). A new or deleted object may be missing or listed for a while."""
        ...

    async def delete(self, key: str) -> None:
        """Remove an object. It may be absent."""
        ...

    async def close(self) -> None:
        """Give back connections. No call comes later."""
        ...


class LocalObjectStore(ObjectStore, Protocol):
    """A store on the disks of this machine. Its objects are read in place: a copy of them would have nothing to gain.

    An object is never changed in place. A reader that has opened its file sees the same bytes after the object is
    replaced or deleted.
    """

    async def local_file(self, key: str) -> str | None:
        """Return the path of the file (of ``Runtime.files``) that is the object, and nothing else. Without the object
        there is no file.

        ``None``: read it by ``get_range``, because to open or read the file may wait for another machine, or because
        the file system doesn't tell what is in the page cache.
        """
        ...


async def local_file(store: ObjectStore, key: str) -> str | None:
    """Return the file that is the object, where the store is a :class:`LocalObjectStore` and names one."""
    return await cast("LocalObjectStore", store).local_file(key) if hasattr(store, "local_file") else None


StoreFactory: TypeAlias = "Callable[[str, Runtime], ObjectStore]"
"""Makes the store of a URL. It opens nothing, and raises :class:`StoreMisconfiguredError` if the URL can't be used."""
