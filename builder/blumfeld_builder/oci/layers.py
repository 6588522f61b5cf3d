"""Layers: tars whose bytes follow from the files alone."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Callable, Iterator, Mapping
from typing import IO

import msgspec

from blumfeld_builder.tools import TIMES

MEDIA_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"


class Layer(msgspec.Struct, frozen=True):
    """A layer in a file: its digest, and that of its tar before compression."""

    path: str
    digest: str
    size: int
    diff_id: str


Fill = Callable[[tarfile.TarFile], None]


def write_layer(path: str, fill: Fill) -> Layer:
    """Write what ``fill`` adds to a tar as a compressed layer."""
    with open(path, "wb") as file:
        outer = _Hashing(file)
        with gzip.GzipFile(filename="", mode="wb", fileobj=outer, mtime=0, compresslevel=6) as packed:
            inner = _Hashing(packed)
            with tarfile.open(fileobj=inner, mode="w|", format=tarfile.PAX_FORMAT) as tar:
                fill(tar)
    return Layer(path, outer.digest(), os.path.getsize(path), inner.digest())


class _Hashing(io.RawIOBase):
    """A file that is written through to another one, and hashed."""

    def __init__(self, file: IO[bytes] | gzip.GzipFile) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._hash.update(data)
        return self._file.write(data)

    def digest(self) -> str:
        """Returns the digest of all that was written, as OCI writes digests."""
        return f"sha256:{self._hash.hexdigest()}"


def add_tree(tar: tarfile.TarFile, folder: str, under: str) -> None:
    """Add a folder that was written for the image: owned by root, with one time and two modes."""
    for path, name in _walk(folder, under):
        entry = _plain(name, os.lstat(path))
        if entry.isfile():
            with open(path, "rb") as file:
                tar.addfile(entry, file)
        else:
            tar.addfile(entry)


def add_folder(tar: tarfile.TarFile, name: str, owner: int = 0) -> None:
    """Add an empty folder."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o755, TIMES
    entry.uid = entry.gid = owner
    tar.addfile(entry)


def _plain(name: str, found: os.stat_result) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.mtime = TIMES
    if stat.S_ISDIR(found.st_mode):
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    else:
        entry.size, entry.mode = found.st_size, 0o755 if found.st_mode & 0o100 else 0o644
    return entry


def add_rootfs(tar: tarfile.TarFile, root: str) -> None:
    """Add a root file system as it is: owners, modes, links and times. Python's bytecode is bound to the times.

    Devices, sockets and pipes are left out: a container gets its own.
    """
    first_of: dict[tuple[int, int], str] = {}
    for path, name in _walk(root, ""):
        found = os.lstat(path)
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode) or stat.S_ISLNK(found.st_mode)):
            continue
        entry = tar.gettarinfo(path, name)
        entry.uname = entry.gname = ""
        entry.mtime = int(found.st_mtime)
        tar.inodes = {}  # type: ignore[attr-defined]  # hard links are found here, in the order of names
        known = first_of.setdefault((found.st_dev, found.st_ino), name)
        if stat.S_ISREG(found.st_mode) and known != name:
            entry.type, entry.linkname, entry.size = tarfile.LNKTYPE, known, 0
        elif stat.S_ISREG(found.st_mode):
            entry.type, entry.linkname, entry.size = tarfile.REGTYPE, "", found.st_size
        if entry.isreg():
            with open(path, "rb") as file:
                tar.addfile(entry, file)
        else:
            tar.addfile(entry)


def _walk(folder: str, under: str) -> Iterator[tuple[str, str]]:
    """Yields (path, name in the tar), a folder before what it holds, sorted."""
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        inside = f"{under}/{name}" if under else name
        yield path, inside
        if os.path.isdir(path) and not os.path.islink(path):
            yield from _walk(path, inside)


def names_in(path: str) -> Mapping[str, bool]:
    """Returns the names in a layer, with whether each is a file or a link.

    :raises tarfile.TarError: it is no tar that Python's library reads
    """
    with tarfile.open(path, "r:*") as tar:
        return {
            entry.name.removeprefix("./"): entry.isfile() or entry.issym() or entry.islnk() for entry in tar
        }
