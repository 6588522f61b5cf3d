"""One section of a manifest as values: the same checks and the same errors for each program that reads one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from blumfeld.plugging.errors import LEFT_OUT, Faults, ManifestError, Problem, one_of, shown, usable_part

SECTIONS = (
    "archive",
    "build",
    "config",
    "consensus",
    "groups",
    "logging",
    "metrics",
    "migration",
    "network",
    "node",
    "nodes",
    "plugins",
    "quotas",
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


def decode_section(
    raw: Mapping[str, Any], kind: type[_S], source: str, path: str = "", faults: Faults | None = None
) -> _S:
    """Returns a table as values of ``kind``; for the ``options`` of a plug-in too.

    :param faults: gets the problems. The values that can be used are returned, so that they can be checked further
    :raises ManifestError: every unknown key and every value of a wrong type; ``path`` is where the table stands. With
        ``faults`` only where nothing can be used
    """
    try:
        return msgspec.convert(raw, kind, strict=True)
    except msgspec.ValidationError:
        problems: list[Problem] = []
        part = usable_part(raw, kind, path, problems)
        own = Faults(source) if faults is None else faults
        own.add(problems)
        if faults is None or part is LEFT_OUT:
            own.tell()
        return msgspec.convert(part, kind, strict=True)


VARIABLE = re.compile(r"\$\{[A-Za-z_][^}]*\}")


def variable_problems(raw: object, path: str = "") -> Iterator[Problem]:
    """Yields a problem for each text with a variable in it, such as ``${HOME}``. No text of a manifest is expanded, and
    as it is the text would name something that isn't meant."""
    if isinstance(raw, Mapping):
        for key, value in raw.items():
            name = f'"{key}"' if path == "config" or "." in key else key
            yield from variable_problems(value, f"{path}.{name}" if path else name)
    elif isinstance(raw, list):
        for nth, item in enumerate(raw):
            yield from variable_problems(item, f"{path}[{nth}]")
    elif isinstance(raw, str) and (variable := VARIABLE.search(raw)) is not None:
        allowed = (
            f"the text that {variable.group()} stands for: a manifest expands nothing, a shell does (--set)"
        )
        yield Problem(path, shown(raw), allowed)


def read_section(text: str, name: str, kind: type[_S], source: str, laid_over: Mapping[str, Any]) -> _S:
    """Returns the section ``name`` of a manifest, with the values of a command line laid over it.

    Other sections are another program's: only their names are checked. A table is replaced as a whole.

    :raises ManifestError: no TOML, an unknown section, a section that is no table, or as :func:`decode_section`
    """
    raw = parse_manifest(text, source)
    faults = Faults(source)
    faults.add(Problem(key, "an unknown key", one_of(key, SECTIONS)) for key in raw if key not in SECTIONS)
    section = raw.get(name, {})
    if not isinstance(section, Mapping):
        faults.add([Problem(name, shown(section), "a table")])
        section = {}
    given = {**section, **laid_over}
    faults.add(variable_problems(given, name))
    decoded = decode_section(given, kind, source, name, faults)
    faults.tell()
    return decoded


def node_directory(directory: str, node_id: int) -> str:
    """Returns the log directory of one of the nodes of ``nodes = N``: it lies below that of the manifest."""
    return f"{directory.rstrip('/') or directory}/node-{node_id}"
