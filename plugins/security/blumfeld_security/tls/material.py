"""A node's files of keys: the marks that tell of a change, and lists of revoked certificates."""

from __future__ import annotations

import os
from collections.abc import Sequence

from blumfeld.client.security.stores import TlsConfigError, read_file
from blumfeld.spi.runtime import Files

CRL = b"-----BEGIN X509 CRL-----"
Mark = tuple[int, int] | None
WORKERS_MAX = 4


def marks_of(files: Files, paths: Sequence[str]) -> tuple[Mark, ...]:
    """Returns the time of the last change and the size of each file; ``None`` for a file that is missing."""
    return tuple(_mark(files, path) for path in paths)


def _mark(files: Files, path: str) -> Mark:
    try:
        file = files.open(path, write=False)
    except OSError:
        return None
    try:
        return files.modified_ms(path), file.size()
    except OSError:
        return None
    finally:
        file.close()


def workers() -> int:
    """Returns the number of workers for handshakes: one processor is the loop's."""
    return max(1, min(WORKERS_MAX, (os.cpu_count() or 2) - 1))


def revoked(files: Files, path: str) -> bytes:
    """Returns the lists of revoked certificates in a file, in PEM.

    :raises TlsConfigError: there is none
    """
    key = "security.options.tls.revocation_lists"
    pem = read_file(files, key, path)
    if CRL not in pem:
        raise TlsConfigError(key, f"{path}, in which there is no list", "PEM: -----BEGIN X509 CRL-----")
    return pem
