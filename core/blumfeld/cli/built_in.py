"""What an artefact of ``blumfeld build`` carries: the manifest that it was built from, and the lock of its wheels."""

from __future__ import annotations

import os
from importlib.util import find_spec

PACKAGE = "blumfeld_build"
"""The package that the builder adds to an artefact. It holds files and no code."""
MANIFEST, LOCK, PLAN, NAME = "manifest.toml", "pylock.toml", "plan.json", "name.txt"


def built_in(name: str) -> str | None:
    """Returns the text of one of the files, or ``None`` where this Blumfeld is no artefact.

    :raises OSError: the artefact's files were removed under it
    """
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    with open(os.path.join(os.path.dirname(spec.origin), name), encoding="utf-8", newline="") as file:
        return file.read()


def build_name() -> str | None:
    """Returns the name of the build; ``None`` where this Blumfeld is no artefact."""
    try:
        return built_in(NAME)
    except OSError:
        return None  # whatever misses it needs the manifest too, and says so
