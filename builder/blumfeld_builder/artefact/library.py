"""The wheels of a build, unpacked to one folder that Python imports from."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Sequence

from blumfeld.plugging.errors import ManifestError, Problem
from blumfeld_builder.target import Target
from blumfeld_builder.tools import Said, ToolFailed, run_program


def unpack(wheels: Sequence[str], library: str) -> None:
    """Unpack wheels over what the folder holds. Scripts, headers and data are left out: a broker uses none."""
    os.makedirs(library, exist_ok=True)
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as file:
            for entry in sorted(file.namelist()):
                place = _place(entry)
                if place is not None and not entry.endswith("/"):
                    _extract(file, entry, os.path.join(library, place))


def _place(entry: str) -> str | None:
    """Returns where a wheel's file goes below the library; ``None`` for scripts, headers and data."""
    top, _, rest = entry.partition("/")
    if not top.endswith(".data"):
        return entry
    kind, _, inside = rest.partition("/")
    return inside if kind in ("purelib", "platlib") else None


def _extract(file: zipfile.ZipFile, entry: str, path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with file.open(entry) as source, open(path, "wb") as copied:
        shutil.copyfileobj(source, copied)
    os.chmod(path, 0o755 if file.getinfo(entry).external_attr >> 16 & 0o100 else 0o644)


def plan_of(library: str, source: str, target: Target, work: str) -> str:
    """Returns the plan (JSON) of the broker in a library.

    :param source: the manifest's name
    :raises ManifestError: the broker says what is wrong
    """
    # Without -S the interpreter would find what is installed beside the builder, too.
    command = [target.executable, "-S", "-m", "blumfeld.cli.main", "plan", "--json"]
    try:
        return run_program(command, "plan", cwd=work, env={"PYTHONPATH": library}).output
    except ToolFailed as failed:
        raise complaint(failed.said, source) from None


def complaint(said: Said, source: str) -> ManifestError:
    """Returns what a broker of the build complains of."""
    lines = (said.error or said.output).splitlines() or ["nothing"]
    told = [line.removeprefix("blumfeld: ") for line in lines if line.startswith("blumfeld: ")]
    problems = [Problem("", line.removeprefix("built-in manifest: ")) for line in told]
    return ManifestError(source, problems or [Problem("", f"the broker that was built fails: {lines[-1]}")])
