"""Files of a broker whose directory dies with it: real ones, but nothing waits for the device.

An edge module, as the files that it stands on.
"""

from __future__ import annotations

import os

from blumfeld.kernel.runtime.real_files import RealFile, RealFiles


class UnsyncedFile(RealFile):
    """An open file whose ``fdatasync`` promises nothing."""

    def fdatasync(self) -> None:
        """Done: who could lose it is gone by then."""


class UnsyncedFiles(RealFiles):
    """The file system of this machine, for a directory that no restart will read."""

    file_class = UnsyncedFile

    def write_atomically(self, path: str, data: bytes) -> None:
        """Replace a small file."""
        temporary = path + ".tmp"
        with open(temporary, "wb") as file:
            file.write(data)
        os.rename(temporary, path)

    def sync_dir(self, path: str) -> None:
        """Done."""
