"""A small file that takes its place without a sync, and its later sync."""

from __future__ import annotations

import errno

from blumfeld.spi.runtime import Files


def write_unsynced(files: Files, path: str, data: bytes) -> None:
    """Write or replace a file. After a kill it is whole; a power cut may take it or tear it. Raises ``OSError``."""
    file = files.open(f"{path}.tmp", create=True)
    try:
        if file.pwritev([data], 0) != len(data):
            raise OSError(errno.ENOSPC, "short write of a small file", file.path)
        file.truncate(len(data))
    finally:
        file.close()
    files.rename(f"{path}.tmp", path)


def sync_bytes(files: Files, path: str) -> None:
    """Sync the bytes of such a file, not its name. Blocks. Raises ``OSError``."""
    file = files.open(path, write=False)
    try:
        file.fdatasync()
    finally:
        file.close()
