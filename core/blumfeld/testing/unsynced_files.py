"""Files of a broker whose directory dies with it: real ones, but nothing waits for the device.

An edge module, as the files that it stands on.
"""

from __future__ import annotations

import os

from blumfeld.kernel.real_files import FILE_MODE, RealFile, RealFiles


class UnsyncedFile(RealFile):
    """An open file whose ``fdatasync`` promises nothing."""

    def fdatasync(self) -> None:
        """Done: who could lose it is gone by then."""


class UnsyncedFiles(RealFiles):
    """The file system of this machine, for a directory that no restart will read."""

    def open(
        self, path: str, *, create: bool = False, exclusive: bool = False, write: bool = True
    ) -> UnsyncedFile:
        """Open for reading and, unless ``write=False``, writing. Never truncates."""
        flags = os.O_RDWR if write else os.O_RDONLY
        if create:
            flags |= os.O_CREAT
        if exclusive:
            flags |= os.O_CREAT | os.O_EXCL
        return UnsyncedFile(path, os.open(path, flags | os.O_CLOEXEC, FILE_MODE))

    def write_atomically(self, path: str, data: bytes) -> None:
        """Replace a small file."""
        temporary = path + ".tmp"
        with open(temporary, "wb") as file:
            file.write(data)
        os.rename(temporary, path)

    def sync_dir(self, path: str) -> None:
        """Done."""
