"""The manifest of a command line, and the exit statuses of the verbs that start nodes from one."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from blumfeld.cli.built_in import MANIFEST, PACKAGE, built_in
from blumfeld.kernel.manifest.sections import NO_FILE, Manifest, read_manifest
from blumfeld.plugging.errors import Faults, ManifestError, file_problem

NOT_STARTED, BAD_MANIFEST = 1, 2
"""Exit statuses beside 0, a clean stop. A defect of a running node also exits with 1."""

BUILT_IN = "built-in manifest"
"""Name of an artefact's own manifest in error messages."""


def source_name(path: str | None) -> str:
    """Returns the manifest's name in error messages."""
    return path or (NO_FILE if find_spec(PACKAGE) is None else BUILT_IN)


def load_manifest(
    path: str | None,
    overrides: Sequence[str] = (),
    data_dir: str | None = None,
    listen: str | None = None,
    faults: Faults | None = None,
) -> Manifest:
    """Returns the manifest from a file, overlaid with the command line's values.

    Without a file it is the built-in one in an artefact of ``blumfeld build``, else the default one.

    :param faults: as for :func:`~blumfeld.kernel.manifest.sections.read_manifest`
    :raises ManifestError: the file can't be read, or as ``read_manifest``
    """
    source = source_name(path)
    try:
        text = built_in(MANIFEST) if path is None else _read(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(source, [file_problem(error)]) from None
    return read_manifest(text, source, overrides=overrides, data_dir=data_dir, listen=listen, faults=faults)


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
