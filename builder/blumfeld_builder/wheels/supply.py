"""The wheels that ``build.wheels`` names: folders of them, single ones, and those that are built from sources."""

from __future__ import annotations

import os
import re
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from urllib.parse import unquote, urlsplit

import msgspec
from packaging.requirements import Requirement

from blumfeld.kernel.manifest.sections import BuildSection
from blumfeld.plugging.errors import Faults, Problem, shown
from blumfeld_builder.tools import ToolFailed, run_module

ALLOWED = "a wheel, a folder of wheels, or a folder with a pyproject.toml; relative to the manifest"


class Supply(msgspec.Struct, frozen=True):
    """Where wheels are looked for."""

    folders: tuple[str, ...]
    """Absolute paths of folders and of single wheels."""
    index: str | None
    searched: str
    """The same in words, for messages."""

    @property
    def options(self) -> tuple[str, ...]:
        """pip's options that make it look here and nowhere else."""
        index = ("--no-index",) if self.index is None else ("--index-url", self.index, "--retries", "1")
        return (*index, *(part for folder in self.folders for part in ("--find-links", folder)))

    def files(self) -> Iterator[str]:
        """Yields the paths of all wheels on this machine, sorted in each folder."""
        for folder in self.folders:
            yield from [folder] if folder.endswith(".whl") else _wheels_in(folder)


def find_supply(section: BuildSection, beside: str, work: str, faults: Faults) -> Supply:
    """Returns where to look, with the sources built into a folder in ``work``.

    :param beside: the manifest's folder
    :param faults: gets the paths that hold nothing, and the sources that can't be built
    """
    places: list[str] = []
    sources: list[tuple[str, str, str]] = []
    for nth, entry in enumerate(section.wheels):
        at, path = f"build.wheels[{nth}]", os.path.abspath(os.path.join(beside, entry))
        if os.path.isfile(os.path.join(path, "pyproject.toml")):
            sources.append((at, entry, path))
        elif (os.path.isfile(path) and path.endswith(".whl")) or (os.path.isdir(path) and _wheels_in(path)):
            places.append(path)
        else:
            faults.add([Problem(at, f"{shown(entry)}, {_what(path)}", ALLOWED)])
    faults.add(_index_problems(section.index))
    searched = " and ".join(shown(entry) for entry in section.wheels)
    if section.index is not None:
        searched = f"{searched} and {section.index}" if searched else section.index
    supply = Supply(
        tuple(places), section.index, searched or "nothing: build.wheels and build.index are empty"
    )
    return msgspec.structs.replace(supply, folders=(*places, *_built(sources, supply, work, faults)))


def _index_problems(index: str | None) -> Iterator[Problem]:
    if index is None:
        return
    address = urlsplit(index)
    if "@" in address.netloc:
        found = f"an address at {address.hostname} with a user or a password"
        yield Problem("build.index", found, "an address without: the lock would hold them")
    elif not (address.scheme in ("http", "https") and address.hostname) and not (
        address.scheme == "file" and os.path.isdir(unquote(address.path))
    ):
        yield Problem(
            "build.index", shown(index), "https://HOST/simple, or file:// and a folder that is there"
        )


def _wheels_in(folder: str) -> list[str]:
    return sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".whl"))


def _what(path: str) -> str:
    if os.path.isdir(path):
        return "a folder without wheels"
    return "which is no wheel" if os.path.exists(path) else "which isn't there"


def _built(
    sources: Sequence[tuple[str, str, str]], supply: Supply, work: str, faults: Faults
) -> Iterator[str]:
    """Yields the folder of the wheels that were built, if there are any."""
    folder = os.path.join(work, "built")
    for at, entry, path in sources:
        isolated = supply.options if not _has_backend(path) else ("--no-build-isolation", "--no-index")
        command = ("wheel", "--quiet", "--no-deps", *isolated, "-w", folder, path)
        try:
            run_module("pip", *command, cwd=work, env=_setuptools_elsewhere(work))
        except ToolFailed as failed:
            mistake = f"{shown(entry)}, of which no wheel can be built: {_cause(failed.said.error)}"
            faults.add(
                [Problem(at, mistake, "sources that `pip wheel` builds, with their backend installed")]
            )
    if sources and os.path.isdir(folder):
        yield folder


def _setuptools_elsewhere(work: str) -> dict[str, str]:
    """Returns the variables that let setuptools write to a new folder in ``work``.

    It would write beside the sources, and put into the wheel what earlier builds left there: modules that are gone.
    """
    folder = tempfile.mkdtemp(prefix="setuptools-", dir=work)
    path = os.path.join(folder, "places.cfg")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"[build]\nbuild_base = {folder}\n[egg_info]\negg_base = {folder}\n")
    return {"DIST_EXTRA_CONFIG": path}


def _cause(complaint: str) -> str:
    """Returns the line that says why pip built nothing."""
    lines = complaint.splitlines() or [""]
    for form in (r"(?<=^ERROR: ).*", r"[\w.]*(?:Error|Unavailable|Exception): .*"):
        lines += re.findall(form, complaint, flags=re.M)[-1:]
    return lines[-1]


def _has_backend(source: str) -> bool:
    """Whether what builds the sources is installed here."""
    try:
        with open(os.path.join(source, "pyproject.toml"), "rb") as file:
            needed = tomllib.load(file).get("build-system", {}).get("requires", ["setuptools"])
        return all(
            requirement.specifier.contains(version(requirement.name), prereleases=True)
            for requirement in map(Requirement, needed)
        )
    except (PackageNotFoundError, tomllib.TOMLDecodeError, ValueError):
        return False
