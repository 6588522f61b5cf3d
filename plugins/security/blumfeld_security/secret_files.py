"""Files with secrets: refused where other users of the machine may read them."""

from __future__ import annotations

from blumfeld.spi.runtime import Files

OTHERS = 0o007


class BadSecretFile(Exception):  # noqa: N818 - the noun says what it is
    """The file can't be used. The text names the file and says what to do, and never repeats its content."""


def read_secret_file(files: Files, path: str) -> str:
    """Returns the text of a file.

    :raises BadSecretFile: it is missing or unreadable, every user of the machine may read or change it, or it isn't
        UTF-8
    """
    try:
        mode, data = files.mode(path), files.read_bytes(path)
    except OSError as error:
        raise BadSecretFile(f"{path}: {error.strerror}") from None
    if mode & OTHERS:
        raise BadSecretFile(
            f"{path}: every user of this machine may read or change it (mode {mode:03o}); do: chmod 600 {path}"
        )
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadSecretFile(f"{path}: not UTF-8") from None
