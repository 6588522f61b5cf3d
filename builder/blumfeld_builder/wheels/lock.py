"""The lock: ``pylock.toml`` (PEP 751). Its text follows from the wheels and the requirements alone. Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

import msgspec
import tomli_w
from packaging.pylock import Pylock, PylockValidationError
from packaging.utils import canonicalize_name

from blumfeld.plugging.errors import Faults, ManifestError, Problem
from blumfeld_builder.target import Target
from blumfeld_builder.wheels.requirements import Wanted
from blumfeld_builder.wheels.wheel import Wheel

FILE = "pylock.toml"
WHEELS = "wheels"
"""The folder beside the lock that its wheels lie in."""
TOOL = "blumfeld-builder"


class LockedWheel(msgspec.Struct, frozen=True):
    """A wheel as a lock names it."""

    name: str
    version: str
    file: str
    sha256: str
    path: str | None
    url: str | None


def lock_text(wheels: Sequence[Wheel], wanted: Sequence[Wanted], target: Target) -> str:
    """Returns the lock of these wheels. pip and uv install from it."""
    document: dict[str, Any] = {
        "lock-version": "1.0",
        "environments": [target.environment],
        "requires-python": f"=={target.python}.*",
        "created-by": TOOL,
        "packages": [_package(wheel) for wheel in wheels],
        "tool": {TOOL: {"requires": requirement_lines(wanted)}},
    }
    text: str = tomli_w.dumps(document)
    return text


def requirement_lines(wanted: Sequence[Wanted]) -> list[str]:
    """Returns the requirements that a lock was resolved for, sorted."""
    return sorted({str(need.requirement) for need in wanted})


def _package(wheel: Wheel) -> dict[str, Any]:
    entry = {"name": wheel.file}
    if wheel.url is not None:
        entry["url"] = wheel.url
    entry["path"] = f"{WHEELS}/{wheel.file}"
    locked = {**entry, "size": wheel.size, "hashes": {"sha256": wheel.sha256}}
    return {"name": wheel.name, "version": wheel.version, "wheels": [locked]}


def read_lock(text: str, source: str, wanted: Sequence[Wanted], target: Target) -> list[LockedWheel]:
    """Returns the wheels of a lock, sorted by name.

    :param source: the lock's name in messages
    :param wanted: the requirements of the manifest that is built
    :raises ManifestError: it is no lock, or one of another manifest, Python or platform
    """
    try:
        raw = tomllib.loads(text)
        lock = Pylock.from_dict(raw)
    except (tomllib.TOMLDecodeError, PylockValidationError, ValueError) as error:
        problem = Problem("", f"no lock: {error}", f"a {FILE} (PEP 751) that a build has written")
        raise ManifestError(source, [problem]) from None
    faults = Faults(source)
    faults.add(_misfits(raw, wanted, target))
    faults.tell()
    wheels: list[LockedWheel] = []
    for package in lock.packages:
        if package.name in {wheel.name for wheel in wheels}:
            problem = Problem(f"packages.{package.name}", "two packages of this name", "one")
            raise ManifestError(source, [problem])
        entries = package.wheels or ()
        if len(entries) != 1 or "sha256" not in entries[0].hashes:
            at = f"packages.{package.name}"
            problem = Problem(at, f"{len(entries)} wheels", "one wheel with its sha256 for each package")
            raise ManifestError(source, [problem])
        [wheel] = entries
        file = wheel.name or (wheel.path or wheel.url or "").rpartition("/")[2]
        locked = LockedWheel(
            str(package.name), str(package.version), file, wheel.hashes["sha256"], wheel.path, wheel.url
        )
        wheels.append(locked)
    return sorted(wheels, key=lambda wheel: canonicalize_name(wheel.name))


def _misfits(raw: dict[str, Any], wanted: Sequence[Wanted], target: Target) -> list[Problem]:
    problems = []
    tool = raw.get("tool", {}).get(TOOL)
    lines = tool.get("requires") if isinstance(tool, dict) else None
    given = set(map(str, lines)) if isinstance(lines, list) else set()
    needed = set(requirement_lines(wanted))
    if given != needed:
        more = [f"{line} is new" for line in sorted(needed - given)]
        less = [f"{line} is gone" for line in sorted(given - needed)]
        allowed = "a lock of this manifest; build once without --locked to make one"
        problems.append(
            Problem(f"tool.{TOOL}.requires", f"those of another manifest: {', '.join(more + less)}", allowed)
        )
    if (python := raw.get("requires-python")) != f"=={target.python}.*":
        problems.append(
            Problem("requires-python", str(python), f"=={target.python}.*, as build.python of the manifest")
        )
    if target.environment not in (environments := raw.get("environments", [])):
        problems.append(Problem("environments", " or ".join(environments) or "none", target.environment))
    return problems
