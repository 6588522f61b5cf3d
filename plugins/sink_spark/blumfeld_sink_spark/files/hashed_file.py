"""A file that is hashed while it is written."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import BinaryIO


class HashedFile:
    """The file that Arrow writes into: counts and hashes the bytes on their way into a file of the store.

    ``close`` closes the file, which syncs it (the store's promise); after that the bytes are safe against a crash.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self._dropped = False
        self.bytes = 0

    @property
    def closed(self) -> bool:
        """True after ``close``."""
        return self._file.closed

    @property
    def sha256(self) -> str:
        """SHA-256 of the bytes written so far, as hex."""
        return self._hash.hexdigest()

    def write(self, data: bytes) -> int:
        """Writes all of the data.

        :raises OSError: the store is full
        """
        if self._dropped:
            return len(data)
        self._file.write(data)
        self._hash.update(data)
        self.bytes += len(data)
        return len(data)

    def tell(self) -> int:
        """Returns how many bytes were written."""
        return self.bytes

    def flush(self) -> None:
        """Does nothing: only ``close`` syncs."""

    def seekable(self) -> bool:
        """Returns False: a file is written once, from its start."""
        return False

    def readable(self) -> bool:
        """Returns False."""
        return False

    def writable(self) -> bool:
        """Returns True."""
        return True

    def close(self) -> None:
        """Closes the file. It is synced when the call returns."""
        self._file.close()

    def drop(self) -> None:
        """Closes the file as it is and drops later writes: Arrow's writer still writes a footer when it closes."""
        self._dropped = True
        with suppress(OSError):
            self._file.close()
