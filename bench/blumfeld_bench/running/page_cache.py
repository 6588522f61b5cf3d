"""Drop files from the kernel's page cache, so that the next read of them is cold."""

from __future__ import annotations

import os
from pathlib import Path


def drop(folder: Path) -> int:
    """Write dirty data below ``folder`` to the disk, then drop all of it from the page cache; return the bytes of its
    files.

    Files that a process has mapped (Kafka's indexes) stay cached. A file system in memory has nothing that can be
    dropped.
    """
    total_bytes = 0
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            total_bytes += os.fstat(file).st_size
        finally:
            os.close(file)
    return total_bytes
