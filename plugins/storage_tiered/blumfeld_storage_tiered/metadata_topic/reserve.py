"""Room on the disks for records of remote log metadata.

A local segment goes once the end of its copy is recorded. On a disk that is full to the last byte there would be no
room for that record, and so the disk would stay full for ever, although the store has room. Therefore a node keeps some
files of zeros, and removes one of them for a record that doesn't fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from errno import ENOSPC

from blumfeld.spi.runtime import Files

PIECES = 16
PIECE_BYTES = 64 << 10
"""Smaller than most batches of producers that wait for room, so that these leave it alone. It has room for two hundred
records."""
FULL_BYTES = 1 << 20
"""A disk with less room than this may be the reason why a record wasn't written."""
ROOMY_BYTES = 32 << 20
"""A disk must have so much room before the reserve takes some of it."""


class Reserve:
    """The files of zeros of a node.

    :param folders: one on each disk that records may lie on
    """

    def __init__(self, files: Files, folders: Sequence[str]) -> None:
        self._files = files
        self._folders = folders

    def keep(self) -> None:
        """Take what is missing, from disks that have room. For a worker: it blocks.

        :raises OSError: a disk can't be read or written. What was begun is removed
        """
        for folder in self._folders:
            self._files.make_dirs(folder)
            if self._files.space(folder)[1] < ROOMY_BYTES:
                continue
            for path in self._paths(folder):
                if not self._files.exists(path):
                    self._take(path)

    def _take(self, path: str) -> None:
        file = self._files.open(path, create=True)
        try:
            if file.pwritev([bytes(PIECE_BYTES)], 0) != PIECE_BYTES:
                raise OSError(ENOSPC, "short write of a reserve", path)
        except OSError:
            self._files.unlink(path)
            raise
        finally:
            file.close()

    def give(self) -> bool:
        """Remove a piece from each disk that is full. Returns whether there was one."""
        given = False
        for folder in self._folders:
            with suppress(OSError):
                if self._files.space(folder)[1] < FULL_BYTES:
                    given |= self._give(folder)
        return given

    def _give(self, folder: str) -> bool:
        for path in self._paths(folder):
            if self._files.exists(path):
                self._files.unlink(path)
                return True
        return False

    def _paths(self, folder: str) -> list[str]:
        return [f"{folder}/reserve-{number}" for number in range(PIECES)]
