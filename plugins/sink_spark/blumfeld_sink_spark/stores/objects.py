"""An archive in an object store, through obstore. Such a store has no rename, but conditional puts and copies."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, cast

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import from_url

from blumfeld_sink_spark.stores.contract import StoreError

PART_BYTES = 8 << 20
"""Size of a part of a multipart upload. A smaller file is one put."""


class ObjectStore:
    """An :class:`~blumfeld_sink_spark.stores.contract.ArchiveStore` on an object store.

    ``publish`` is a copy inside the store and a delete: the object of the final name is there whole or not at all,
    and a crash in between leaves a copy under ``_staging``, which ``vacuum`` removes. Commit records and leases
    need a store with conditional puts (``If-None-Match``, ``If-Match``), which S3, GCS and Azure have.
    """

    certain = False

    def __init__(self, root: str, store: Any) -> None:
        self.root = root
        self._store = store

    @classmethod
    def of(cls, root: str) -> ObjectStore:
        """Returns the store behind a URL. Credentials, region and endpoint come from the environment (``AWS_…`` and
        so on).

        :raises StoreError: obstore refuses the URL
        """
        with _speaking(root, "opening"):
            return cls(root, from_url(root))

    def __reduce__(self) -> tuple[Any, ...]:
        if self.root.startswith("memory://"):
            raise TypeError("memory:// is of one process: Spark's workers can't reach it")
        return ObjectStore.of, (self.root,)

    def create(self, path: str) -> BinaryIO:
        with _speaking(self.root, f"creating {path}"):
            return cast(BinaryIO, UploadedFile(self.root, path, self._store))

    def publish(self, staged: str, final: str) -> None:
        with _speaking(self.root, f"publishing {final}"):
            obstore.copy(self._store, staged, final, overwrite=True)
        self.delete(staged)

    def publish_all(self, moves: Sequence[tuple[str, str]]) -> None:
        for staged, final in moves:
            self.publish(staged, final)

    def put(self, path: str, data: bytes) -> None:
        with _speaking(self.root, f"writing {path}"):
            obstore.put(self._store, path, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        with _speaking(self.root, f"writing {path}"):
            try:
                obstore.put(self._store, path, data, mode="create")
            except AlreadyExistsError:
                return False
        return True

    def put_if_same(self, path: str, expected: bytes, data: bytes) -> bool:
        with _speaking(self.root, f"writing {path}"):
            try:
                stored_object = obstore.get(self._store, path)
                if bytes(stored_object.bytes()) != expected:
                    return False
                version = {
                    key: stored_object.meta[key]
                    for key in ("e_tag", "version")
                    if stored_object.meta.get(key)
                }
                obstore.put(self._store, path, data, mode=cast(Any, version))
            except (FileNotFoundError, PreconditionError):
                return False
        return True

    def read(self, path: str) -> bytes:
        with _speaking(self.root, f"reading {path}"):
            return bytes(obstore.get(self._store, path).bytes())

    def exists(self, path: str) -> bool:
        try:
            self._head(path)
        except FileNotFoundError:
            return False
        return True

    def size(self, path: str) -> int:
        return int(self._head(path)["size"])

    def modified_ms(self, path: str) -> int:
        return int(self._head(path)["last_modified"].timestamp() * 1000)

    def list(self, prefix: str) -> Iterator[str]:
        with _speaking(self.root, f"listing {prefix}"):
            paths = [item["path"] for page in obstore.list(self._store, prefix or None) for item in page]
        yield from sorted(paths)

    def folders(self, prefix: str) -> tuple[str, ...]:
        with _speaking(self.root, f"listing {prefix}"):
            prefixes = obstore.list_with_delimiter(self._store, prefix or None)["common_prefixes"]
        return tuple(sorted(path.rstrip("/").rpartition("/")[2] for path in prefixes))

    def delete(self, path: str) -> None:
        with _speaking(self.root, f"removing {path}"), suppress(FileNotFoundError):
            obstore.delete(self._store, path)

    def open_input(self, path: str) -> Any:
        import pyarrow as pa

        with _speaking(self.root, f"reading {path}"):
            return pa.PythonFile(_Reader(obstore.open_reader(self._store, path)), mode="r")

    def _head(self, path: str) -> Any:
        with _speaking(self.root, f"looking at {path}"):
            return obstore.head(self._store, path)


class UploadedFile(io.RawIOBase):
    """A file whose bytes become an object when ``close()`` returns."""

    def __init__(self, root: str, path: str, store: Any) -> None:
        self._root, self._path = root, path
        self._writer: Any = obstore.open_writer(store, path, buffer_size=PART_BYTES)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        with _speaking(self._root, f"writing {self._path}"):
            self._writer.write(bytes(data))
        return len(data)

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        with _speaking(self._root, f"writing {self._path}"):
            self._writer.close()


class _Reader(io.RawIOBase):
    """An object as Arrow wants a file: reads give ``bytes``."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return bytes(self._reader.read(size if size >= 0 else None))

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._reader.seek(offset, whence))

    def tell(self) -> int:
        return int(self._reader.tell())


@contextmanager
def _speaking(root: str, doing: str) -> Iterator[None]:
    """Turns an error of the store into a :class:`StoreError` of one line. Errors that are answers pass: an absent
    object, and a condition that didn't hold.
    """
    try:
        yield
    except (AlreadyExistsError, PreconditionError, FileNotFoundError):
        raise
    except (BaseError, OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise StoreError(f"{root}: {doing}: {first}") from error
