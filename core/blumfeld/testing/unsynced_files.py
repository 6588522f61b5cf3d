"""Real files for a broker whose directory is removed with it: no call waits for the device.

An edge module, as the real files are.
"""

from __future__ import annotations

import os

from blumfeld.kernel.runtime.real_files import RealFile, RealFiles


class UnsyncedFile(RealFile):
    """An open file whose ``fdatasync`` does nothing."""

    def fdatasync(self) -> None:
        """Do nothing: no restart will read the file."""


class UnsyncedFiles(RealFiles):
    """The file system of this machine, for a directory that no restart will read."""

    file_class = UnsyncedFile

    def write_atomically(self, path: str, data: bytes) -> None:
        """Replace a small file, without a sync."""
        temporary = path + ".tmp"
        with open(temporary, "wb") as file:
            file.write(data)
        os.rename(temporary, path)

    def sync_dir(self, path: str) -> None:
        """Do nothing."""
