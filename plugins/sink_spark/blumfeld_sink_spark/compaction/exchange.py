"""Exchange of two folders in one step, on systems that can do it."""

from __future__ import annotations

import ctypes
import errno
import os
from contextlib import suppress
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def exchange(first: Path, other: Path) -> None:
    """Exchanges two folders: a reader that lists one of the paths sees one folder or the other, whole. Does not sync
    their parents.

    :raises OSError: the file system or the C library can't (``ENOSYS``, ``EINVAL``), or one isn't there
    """
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        raise OSError(errno.ENOSYS, "no renameat2 here")
    if call(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(first), None, str(other))


def can_exchange(folder: Path) -> bool:
    """Tries an exchange and returns whether folders below this one can be exchanged."""
    first_folder, other = folder / "one", folder / "other"
    try:
        first_folder.mkdir(parents=True, exist_ok=True)
        other.mkdir(exist_ok=True)
        exchange(first_folder, other)
    except OSError:
        return False
    finally:
        for made in (first_folder, other):
            with suppress(OSError):
                made.rmdir()
    return True
