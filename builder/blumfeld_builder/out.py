"""The folder that a build is written to. It appears whole, or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from blumfeld.plugging.errors import ManifestError, Problem

OPTION = "--out"


@contextmanager
def whole_folder(out: str) -> Iterator[str]:
    """Yields a folder beside ``out``, which becomes ``out`` at the end. After an exception nothing is left of it.

    :raises ManifestError: ``out`` is there already, or can't be written; or a file of elsewhere can't be read
    """
    out = os.path.abspath(out)
    if os.path.lexists(out):
        raise _is_there(out)
    parent = os.path.dirname(out)
    try:
        folder = tempfile.mkdtemp(prefix=f".{os.path.basename(out)}.", dir=parent)
    except OSError as error:
        allowed = "a path in a folder that is there and can be written"
        raise ManifestError("", [Problem(OPTION, f"{out}: {_reason(error)}", allowed)]) from None
    try:
        yield folder
        os.chmod(folder, 0o755)
        os.rename(folder, out)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        if error.filename2 == out:  # another build was faster
            raise _is_there(out) from None
        # Without a name it came from a write, here or in the folder for temporary files.
        where = str(error.filename or f"{out}, or {tempfile.gettempdir()} for temporary files")
        if os.path.isabs(where) and not where.startswith((folder, out)):  # such as a file of the base
            raise ManifestError(where, [Problem("", _reason(error))]) from None
        allowed = "a folder on a disk with room, at a path at which nothing is yet"
        raise ManifestError("", [Problem(OPTION, f"{where}: {_reason(error)}", allowed)]) from None
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _is_there(out: str) -> ManifestError:
    return ManifestError("", [Problem(OPTION, f"{out}, which is there", "a path at which nothing is yet")])


def _reason(error: OSError) -> str:
    reason = error.strerror or str(error)
    return reason[:1].lower() + reason[1:]


def write_text(folder: str, name: str, text: str) -> None:
    """Write a file that may be read by all, whatever the umask."""
    write_bytes(folder, name, text.encode())


def write_bytes(folder: str, name: str, data: bytes, mode: int = 0o644) -> None:
    """As :func:`write_text`, for bytes."""
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(data)
    os.chmod(path, mode)
