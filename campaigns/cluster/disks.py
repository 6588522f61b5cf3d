"""A small disk for each node's data, which a ballast file fills to the last byte.

The campaign moves into a mount namespace of its own, so the disks are gone when the processes have ended. It takes
root and Linux.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from campaigns.cluster.unshare import CLONE_NEWNS, leave

BALLAST = "ballast"
BLOCK_BYTES = 1 << 20


class NoDisksError(Exception):
    """This machine or this user can't mount disks; the message says why."""


class Disks:
    """One tmpfs for each folder.

    :raises NoDisksError: this process may not mount them
    """

    def __init__(self, folders: Sequence[Path], size_mb: int) -> None:
        """Move this process into a mount namespace of its own. No thread may run yet: only the calling one moves.

        :param folders: one for each node, with ids from 1 on
        """
        try:
            leave(CLONE_NEWNS)
        except OSError as error:
            raise NoDisksError(f"full disks need a mount namespace: {error}. Run it as root") from error
        self._folders = tuple(folders)
        for folder in folders:
            folder.mkdir(parents=True)
            _run("mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(folder))

    def fill(self, node: int) -> None:
        """Leave no byte of room on a node's disk."""
        # Unbuffered: a buffer that can't be written would be tried again at the close.
        with (self._folders[node - 1] / BALLAST).open("ab", buffering=0) as file:
            block = b"\0" * BLOCK_BYTES
            while block:
                try:
                    file.write(block)
                except OSError:
                    block = block[: len(block) // 2]

    def free(self, node: int) -> None:
        """Give the room back."""
        (self._folders[node - 1] / BALLAST).unlink(missing_ok=True)

    def end(self, kept: Path | None) -> None:
        """Unmount them; the data go to a folder outside, if one is given."""
        for node, folder in enumerate(self._folders, start=1):
            if kept is not None:
                shutil.copytree(folder, kept / f"node{node}", ignore=shutil.ignore_patterns(BALLAST))
            _run("umount", "--lazy", str(folder))


def _run(*command: str) -> None:
    try:
        subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except subprocess.CalledProcessError as error:
        raise NoDisksError(f"{' '.join(command)}: {error.stderr.strip()}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoDisksError(f"{' '.join(command)}: {error}") from error
