"""The manifest of a command line, and the exit statuses of the verbs that start nodes from one."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import NamedTuple

from blumfeld.cli.built_in import MANIFEST, PACKAGE, built_in
from blumfeld.config.values import BROKER_CONFIGS, UnknownConfigError
from blumfeld.kernel.manifest.sections import NO_FILE, Manifest, read_manifest
from blumfeld.kernel.runtime.real_files import RealFiles
from blumfeld.plugging.digests import digest
from blumfeld.plugging.errors import Faults, ManifestError, file_problem
from blumfeld.spi.secret_files import BadSecretFile, check_mode

NOT_STARTED, BAD_MANIFEST = 1, 2
"""Exit statuses beside 0, a clean stop. A defect of a running node also exits with 1."""

BUILT_IN = "built-in manifest"
"""Name of an artefact's own manifest in error messages."""


def source_name(path: str | None) -> str:
    """Returns the manifest's name in error messages."""
    return path or (NO_FILE if find_spec(PACKAGE) is None else BUILT_IN)


class ManifestFile(NamedTuple):
    """A manifest as it was read."""

    source: str
    """Its name in error messages."""
    text: str | None
    """``None`` is the default manifest, which is no file."""

    @property
    def digest(self) -> str | None:
        """``sha256:…`` of the file's bytes, as ``sha256sum`` has it; ``None`` without a file."""
        return None if self.text is None else digest(self.text.encode())


def manifest_file(path: str | None) -> ManifestFile:
    """Returns the file's content. Without a path it is the built-in one in an artefact of ``blumfeld build``, else the
    default one.

    :raises ManifestError: the file can't be read
    """
    source = source_name(path)
    try:
        text = built_in(MANIFEST) if path is None else _read(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(source, [file_problem(error)]) from None
    return ManifestFile(source, text)


def load_manifest(
    path: str | None,
    overrides: Sequence[str] = (),
    data_dir: str | None = None,
    listen: str | None = None,
    faults: Faults | None = None,
) -> Manifest:
    """Returns the manifest of :func:`manifest_file`, overlaid with the command line's values.

    :param faults: as for :func:`~blumfeld.kernel.manifest.sections.read_manifest`
    :raises ManifestError: the file can't be read, or as ``read_manifest``
    """
    source, text = manifest_file(path)
    return read_manifest(text, source, overrides=overrides, data_dir=data_dir, listen=listen, faults=faults)


def _read(path: str) -> str:
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


def secret_keys(manifest: Manifest) -> list[str]:
    """Returns the keys of ``[config]`` that hold secrets. An unknown key is passed over: ``make_plan`` refuses it."""
    return [key for key in manifest.config if _is_secret(key)]


def _is_secret(key: str) -> bool:
    try:
        return BROKER_CONFIGS.find(key).sensitive
    except UnknownConfigError:
        return False


def open_secrets(path: str | None, manifest: Manifest) -> str | None:
    """Returns a warning about a manifest that has a secret and that every user of the machine may read; ``None`` if
    nothing is wrong. A file of keys is refused then. A manifest isn't: brokers run with such files.
    """
    secret = secret_keys(manifest)
    if path is None or not secret:
        return None
    try:
        check_mode(RealFiles(), path)
    except BadSecretFile as error:
        return f"{error}. It has {', '.join(secret)}"
    return None
