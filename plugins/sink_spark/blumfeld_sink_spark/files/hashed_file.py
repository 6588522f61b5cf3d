"""A file that is hashed while it is written."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import BinaryIO


class HashedFile:
    """What Arrow writes into: counts and hashes the bytes on their way into a file of the store.

    ``close`` closes the file, which syncs it (the store's promise); after that the bytes are safe against a crash.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self._dropped = False
        self.bytes = 0

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._file.closed

    @property
    def sha256(self) -> str:
        """Of all that was written so far, as hex."""
        return self._hash.hexdigest()

    def write(self, data: bytes) -> int:
        """Takes all of it.

        :raises OSError: the store is full
        """
        if self._dropped:
            return len(data)
        self._file.write(data)
        self._hash.update(data)
        self.bytes += len(data)
        return len(data)

    def tell(self) -> int:
        """How many bytes were written."""
        return self.bytes

    def flush(self) -> None:
        """Promises nothing: only ``close`` syncs."""

    def seekable(self) -> bool:
        """No: a file is written once, from its start."""
        return False

    def readable(self) -> bool:
        """No."""
        return False

    def writable(self) -> bool:
        """Yes."""
        return True

    def close(self) -> None:
        """Synced when it returns."""
        self._file.close()

    def drop(self) -> None:
        """Closes the file as it is; what is written after that goes nowhere, so that a writer can be closed."""
        self._dropped = True
        with suppress(OSError):
            self._file.close()
