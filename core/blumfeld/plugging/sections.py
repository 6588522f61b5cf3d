"""One section of a manifest as values: the same checks and the same errors for each program that reads one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from blumfeld.plugging.errors import ManifestError, Problem, decode_error, one_of, shown, unknown_keys

SECTIONS = (
    "archive",
    "config",
    "consensus",
    "groups",
    "logging",
    "metrics",
    "network",
    "node",
    "nodes",
    "plugins",
    "replication",
    "security",
    "storage",
    "transactions",
)
"""The section names that a manifest may have. A program that reads one section still refuses a misspelled
other one.
"""

_S = TypeVar("_S", bound=msgspec.Struct)


def parse_manifest(text: str, source: str) -> dict[str, Any]:
    """Returns the tables of a manifest; none where the text is empty.

    :raises ManifestError: the text is no TOML
    """
    if not text:
        return {}
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ManifestError(source, [Problem("", f"no TOML: {error}", "a TOML document")]) from None


def decode_section(raw: Mapping[str, Any], kind: type[_S], source: str, path: str = "") -> _S:
    """Returns a table as values of ``kind``; for the ``options`` of a plug-in too.

    :raises ManifestError: all unknown keys, or the first value of a wrong type; ``path`` is where the table stands
    """
    try:
        return msgspec.convert(raw, kind, strict=True)
    except msgspec.ValidationError as error:
        problems = unknown_keys(raw, kind, path) or [decode_error(error, raw, path, kind)]
        raise ManifestError(source, problems) from None


def read_section(text: str, name: str, kind: type[_S], source: str, laid_over: Mapping[str, Any]) -> _S:
    """Returns the section ``name`` of a manifest, with the values of a command line laid over it.

    Other sections are another program's: only their names are checked. A table is replaced as a whole.

    :raises ManifestError: no TOML, an unknown section, a section that is no table, or as :func:`decode_section`
    """
    raw = parse_manifest(text, source)
    unknown = [key for key in raw if key not in SECTIONS]
    if unknown:
        raise ManifestError(
            source, [Problem(key, "an unknown key", one_of(key, SECTIONS)) for key in unknown]
        )
    section = raw.get(name, {})
    if not isinstance(section, Mapping):
        raise ManifestError(source, [Problem(name, shown(section), "a table")])
    return decode_section({**section, **laid_over}, kind, source, name)
