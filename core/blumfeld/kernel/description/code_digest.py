"""The digest of a distribution's code, by its RECORD. A wheel, and what it was installed into, have the same. Pure."""

from __future__ import annotations

import csv
import json
from importlib.metadata import Distribution

from blumfeld.plugging.digests import digest

BYTECODE = ".pyc"
INSTALLERS = (".dist-info", ".pex-info")
"""Endings of the folders in which pip and pex write."""


def record_digest(record: str) -> str | None:
    """Returns ``sha256:…`` of the sorted lines ``path,hash`` of a RECORD (the text of that file).

    Files beside the packages don't count: dist-info and scripts, which differ by installer, and bytecode.

    :return: ``None`` if no line is left
    """
    lines = sorted(
        f"{row[0]},{row[1]}\n"
        for row in csv.reader(record.splitlines())
        if len(row) > 1 and _counts(*row[:2])
    )
    return digest("".join(lines).encode()) if lines else None


def _counts(path: str, hashed: str) -> bool:
    top = path.partition("/")[0]
    return bool(hashed) and top != ".." and not top.endswith(INSTALLERS) and not path.endswith(BYTECODE)


def code_digest(distribution: Distribution) -> str | None:
    """Returns the digest of an installed distribution; ``None`` for an editable one: its code may change."""
    record = distribution.read_text("RECORD")
    return None if record is None or _is_editable(distribution) else record_digest(record)


def _is_editable(distribution: Distribution) -> bool:
    origin = distribution.read_text("direct_url.json")
    return origin is not None and json.loads(origin).get("dir_info", {}).get("editable") is True
