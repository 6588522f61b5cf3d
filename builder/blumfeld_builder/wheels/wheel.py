"""A wheel as a value: what its file says about it."""

from __future__ import annotations

import base64
import configparser
import csv
import hashlib
import os
import zipfile
import zlib
from collections.abc import Mapping
from email.message import Message
from email.parser import Parser

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from blumfeld.plugging.registry import GROUP


class NotAWheel(Exception):  # noqa: N818 - names what the file is
    """The file is no wheel that can be installed; the message says why."""


class Wheel(msgspec.Struct, frozen=True):
    """A wheel that lies on this machine."""

    path: str
    name: str
    """In its canonical form (``acme-storage``)."""
    version: str
    tags: frozenset[Tag]
    sha256: str
    size: int
    requires: tuple[Requirement, ...]
    requires_python: str
    plugins: tuple[str, ...]
    """Names of its entry points in the group ``blumfeld.plugins``."""
    metadata: Mapping[str, str]
    """``Summary``, ``License-Expression`` and ``License`` where they are given."""
    extras: frozenset[str] = frozenset()
    """Names of its extras, in their canonical form."""
    kits: Mapping[str, str] = {}
    """Plug-in → module with its contract kit, of the group ``blumfeld.kits``."""
    url: str | None = None
    """The address in an index that it came from."""

    @property
    def file(self) -> str:
        """Its file name."""
        return os.path.basename(self.path)


KITS = "blumfeld.kits"
"""The group of entry points in which a distribution names the contract kit of a plug-in: plug-in → module."""
_UNHASHED = ("", ".jws", ".p7s")
"""Ends of the names of RECORD itself and of its signatures."""
_ALGORITHMS = ("sha256", "sha384", "sha512")
"""Those that the specification of wheels takes."""
_KEPT = ("Summary", "License-Expression", "License")
_UNREADABLE = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError)
"""What zipfile raises for a file that is broken, or has a compression that it doesn't know, or a password."""


def read_wheel(path: str, url: str | None = None) -> Wheel:
    """Returns what a wheel's file says. Nothing of it runs.

    :raises NotAWheel: the name or the content is no wheel's
    :raises OSError: the file can't be read
    """
    try:
        name, version, _, tags = parse_wheel_filename(os.path.basename(path))
    except InvalidWheelFilename as error:
        raise NotAWheel(str(error)) from None
    try:
        with zipfile.ZipFile(path) as file:
            metadata, points = _dist_info(file, name)
            _check_record(file)
    except _UNREADABLE as error:
        raise NotAWheel(f"no zip that can be read ({error})") from None
    _check_identity(metadata, name, version)
    requires_python = metadata.get("Requires-Python", "")
    try:
        requires = tuple(Requirement(line) for line in metadata.get_all("Requires-Dist", []))
        SpecifierSet(requires_python)
    except (InvalidRequirement, InvalidSpecifier) as error:
        raise NotAWheel(f"a requirement in its metadata is none: {error}") from None
    return Wheel(
        path=path,
        name=name,
        version=str(version),
        tags=tags,
        sha256=sha256_of(path),
        size=os.path.getsize(path),
        requires=requires,
        requires_python=requires_python,
        plugins=tuple(sorted(points.get(GROUP, {}))),
        metadata={key: metadata[key] for key in _KEPT if key in metadata},
        extras=frozenset(map(canonicalize_name, metadata.get_all("Provides-Extra", []))),
        kits=points.get(KITS, {}),
        url=url,
    )


def _check_identity(metadata: Message, name: str, version: Version) -> None:
    """Hold the metadata to the file's name. A version may be spelled in another way: 1.02 is 1.2."""
    found = metadata.get("Name", ""), metadata.get("Version", "")
    try:
        same = (canonicalize_name(found[0]), Version(found[1])) == (name, version)
    except InvalidVersion:
        same = False
    if not same:
        raise NotAWheel(f"its metadata is of {' '.join(found)}")


def sha256_of(path: str) -> str:
    """Returns the SHA-256 of a file, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _dist_info(file: zipfile.ZipFile, name: str) -> tuple[Message, Mapping[str, Mapping[str, str]]]:
    """Returns the metadata and the entry points by group."""
    folders = {entry.partition("/")[0] for entry in file.namelist() if ".dist-info/" in entry}
    if len(folders) != 1:
        raise NotAWheel(f"{len(folders)} folders .dist-info in place of one")
    [folder] = folders
    entries = set(file.namelist())
    for entry in entries:
        if entry.startswith("/") or ".." in entry.split("/"):
            raise NotAWheel(f"{entry} leads out of the folder that the wheel is unpacked to")
    if absent := [entry for entry in ("METADATA", "WHEEL", "RECORD") if f"{folder}/{entry}" not in entries]:
        raise NotAWheel(f"no {absent[0]} in {folder}")
    # As text: of bytes the parser makes a Header, which is no string, of each value that isn't ASCII.
    metadata = Parser().parsestr(file.read(f"{folder}/METADATA").decode(errors="replace"))
    points = f"{folder}/entry_points.txt"
    try:
        return metadata, _entry_points(file.read(points).decode()) if points in entries else {}
    except (configparser.Error, UnicodeDecodeError) as error:
        raise NotAWheel(f"{points} can't be read: {' '.join(str(error).split())}") from None


def _check_record(file: zipfile.ZipFile) -> None:
    """Hold each file to the hash in RECORD, which the digest of a plug-in's code is made of."""
    names = [entry.filename for entry in file.infolist() if not entry.is_dir()]
    [record] = [name for name in names if name.endswith(".dist-info/RECORD")]
    rows = csv.reader(file.read(record).decode(errors="replace").splitlines())
    hashes = {row[0]: row[1] for row in rows if len(row) == 3}
    for name in names:
        if name.removeprefix(record) in _UNHASHED:
            continue
        algorithm, _, wanted = hashes.pop(name, "").partition("=")
        if algorithm not in _ALGORITHMS:
            raise NotAWheel(f"{record} has no hash of {name}")
        with file.open(name) as content:
            found = hashlib.file_digest(content, algorithm).digest()  # type: ignore[arg-type]
        if base64.urlsafe_b64encode(found).rstrip(b"=").decode() != wanted:
            raise NotAWheel(f"{name} has another hash than {record} says")
    if absent := sorted(hashes.keys() - set(names)):
        raise NotAWheel(f"{record} names {absent[0]}, which isn't there")


def _entry_points(text: str) -> Mapping[str, Mapping[str, str]]:
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    return {group: dict(parser[group]) for group in parser.sections()}
