"""Files with secrets: refused where other users of the machine may read them."""

from __future__ import annotations

from blumfeld.spi.runtime import Files

OTHERS = 0o007


class BadSecretFile(Exception):  # noqa: N818 - the noun says what it is
    """The file can't be used. The text names the file and says what to do, and never repeats its content."""


def check_mode(files: Files, path: str) -> None:
    """Refuse a file that every user of the machine may read or change.

    :raises BadSecretFile: they may, or there is no such file
    """
    try:
        mode = files.mode(path)
    except OSError as error:
        raise BadSecretFile(f"{path}: {error.strerror}") from None
    if mode & OTHERS:
        raise BadSecretFile(
            f"{path}: every user of this machine may read or change it (mode {mode:03o}); do: chmod o= {path}"
        )


def read_secret_file(files: Files, path: str) -> str:
    """Returns the text of a file.

    :raises BadSecretFile: as :func:`check_mode`; it is unreadable, or isn't UTF-8
    """
    check_mode(files, path)
    try:
        return files.read_bytes(path).decode()
    except OSError as error:
        raise BadSecretFile(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadSecretFile(f"{path}: not UTF-8") from None
