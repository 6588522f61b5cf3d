"""The manifest of a command line, and the exit statuses of the verbs that start nodes from one."""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.kernel.manifest.sections import NO_FILE, Manifest, read_manifest
from blumfeld.plugging.errors import Faults, ManifestError, file_problem

NOT_STARTED, BAD_MANIFEST = 1, 2
"""Exit statuses beside 0, a clean stop. A defect of a running node also exits with 1."""


def load_manifest(
    path: str | None,
    overrides: Sequence[str] = (),
    data_dir: str | None = None,
    listen: str | None = None,
    faults: Faults | None = None,
) -> Manifest:
    """Returns the manifest from a file (``None`` is the default one), overlaid with the command line's values.

    :param faults: as for :func:`~blumfeld.kernel.manifest.sections.read_manifest`
    :raises ManifestError: the file can't be read, or as ``read_manifest``
    """
    text = None
    if path is not None:
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise ManifestError(path, [file_problem(error)]) from None
    source = path or NO_FILE
    return read_manifest(text, source, overrides=overrides, data_dir=data_dir, listen=listen, faults=faults)
