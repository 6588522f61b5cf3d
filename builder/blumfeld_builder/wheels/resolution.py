"""pip resolves the requirements of a build. What it can't resolve is told with the place in the manifest."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from blumfeld.plugging.errors import Faults, ManifestError, Problem, closest
from blumfeld_builder.target import Target
from blumfeld_builder.tools import ToolFailed, run_module
from blumfeld_builder.wheels.lock import LockedWheel
from blumfeld_builder.wheels.requirements import Wanted
from blumfeld_builder.wheels.supply import Supply
from blumfeld_builder.wheels.wheel import NotAWheel, Wheel, read_wheel, sha256_of

NAMED = "wheels that require others by name and version"


def resolve(
    wanted: Sequence[Wanted], supply: Supply, target: Target, work: str, faults: Faults
) -> list[Wheel]:
    """Returns one wheel for each distribution of the build, sorted by name. They lie on this machine.

    :raises ManifestError: there is no set of wheels that fits, the index can't be reached, or a file is no wheel
    """
    report = os.path.join(work, "report.json")
    lines = sorted({str(need.requirement) for need in wanted})
    options = ("--dry-run", "--ignore-installed", "--only-binary", ":all:", "--report", report)
    try:
        said = run_module("pip", *_python(target), "install", *options, *supply.options, *lines, cwd=work)
        faults.add(_silent_index(said.error, supply))
    except ToolFailed as failed:
        faults.add(_explained(f"{failed.said.output}\n{failed.said.error}", wanted, supply, target))
    faults.tell()
    with open(report, "rb") as file:
        installed = json.load(file)["install"]
    faults.add(_addressed(installed))
    faults.tell()
    return sorted(_fetched(installed, target, work, faults.source), key=lambda wheel: wheel.name)


def _addressed(installed: Sequence[Any]) -> Iterator[Problem]:
    """Yields the wheels that another one requires by an address (PEP 508). pip takes them from there, whatever it was
    told of an index."""
    for item in installed:
        if item["is_direct"]:
            name, url = canonicalize_name(item["metadata"]["name"]), item["download_info"]["url"]
            requirers = [
                f"{other['metadata']['name']} requires {line}"
                for other in installed
                for line in other["metadata"].get("requires_dist", ())
                if "@" in line and canonicalize_name(re.split(r"[^\w.-]", line)[0]) == name
            ]
            found = f"{name} from {url}: {'; '.join(requirers)}"
            yield Problem("build.wheels", found, NAMED)


def _fetched(installed: Sequence[Any], target: Target, work: str, source: str) -> Iterator[Wheel]:
    origins: dict[str, str] = {}
    for item in installed:
        url = item["download_info"]["url"]
        if not url.startswith("file:"):
            origins[url] = item["download_info"]["archive_info"]["hashes"]["sha256"]
    downloaded = download(origins, target, work)
    for item in installed:
        url = item["download_info"]["url"]
        path = downloaded.get(url) or os.fsdecode(unquote_to_bytes(urlsplit(url).path))
        try:
            yield read_wheel(path, url if url in downloaded else None)
        except NotAWheel as error:
            problem = Problem("build.wheels", f"{os.path.basename(path)}: {error}", "a wheel")
            raise ManifestError(source, [problem]) from None


def download(sha256_of_url: Mapping[str, str], target: Target, work: str) -> dict[str, str]:
    """Bring wheels from an index to a folder in ``work``. Returns the path of each by its address.

    :raises ToolFailed: one can't be reached, or its hash is another one
    """
    if not sha256_of_url:
        return {}
    folder = os.path.join(work, "downloads")
    options = ("--quiet", "--no-deps", "--no-index", "--retries", "1", "--dest", folder)
    urls = [f"{url}#sha256={digest}" for url, digest in sha256_of_url.items()]
    run_module("pip", *_python(target), "download", *options, *urls, cwd=work)
    return {
        url: os.path.join(folder, unquote(urlsplit(url).path.rpartition("/")[2])) for url in sha256_of_url
    }


def _python(target: Target) -> tuple[str, ...]:
    """Returns pip's option for another interpreter than the one that runs it."""
    return () if target.executable == sys.executable else ("--python", target.executable)


def _explained(output: str, wanted: Sequence[Wanted], supply: Supply, target: Target) -> list[Problem]:
    """Returns pip's complaint as problems."""
    if silent := _silent_index(output, supply):
        return silent
    if unreached := re.search(r"Failed to connect to \S+ while fetching (\S+)", output):
        found = f"one from {unreached[1]}, which can't be reached: another wheel requires it by this address"
        return [Problem("build.wheels", found, NAMED)]
    conflict = re.search(r"The conflict is caused by:\n(.*?)\n\n", output + "\n\n", flags=re.S)
    if conflict is not None:
        lines = [
            line.strip().replace("The user requested", "the build requires")
            for line in conflict[1].splitlines()
        ]
        places = _places(conflict[1], wanted)
        return [
            Problem(places, f"a conflict: {'; '.join(lines)}", "requirements that one set of wheels fulfils")
        ]
    if other := re.search(r"Package '(\S+)' requires a different Python: (\S+) not in '([^']*)'", output):
        found = f"{other[1]}, which requires Python {other[3]}"
        return [
            Problem(_places(other[1], wanted), found, f"a version for Python {target.python} (build.python)")
        ]
    if invalid := re.search(
        r"Wheel '\S+' located at (\S+) is (invalid)|(\S+) has (an invalid wheel, .*)", output
    ):
        found = f"{invalid[1]}, which is no zip" if invalid[1] else f"{invalid[3]}, which has {invalid[4]}"
        return [Problem("build.wheels", found, "wheels")]
    if absent := re.search(r"No matching distribution found for (\S+)", output):
        return [
            _absent(canonicalize_name(re.split(r"[^\w.-]", absent[1])[0]), output, wanted, supply, target)
        ]
    errors = [line.removeprefix("ERROR: ") for line in output.splitlines() if line.startswith("ERROR: ")]
    return [Problem("build", f"a failure of pip: {'; '.join(errors) or output}", "what pip can resolve")]


def _places(text: str, wanted: Sequence[Wanted]) -> str:
    """Returns the places of the manifest whose requirements a text names."""
    words = {canonicalize_name(word) for word in re.findall(r"[A-Za-z0-9][\w.-]*", text)}
    paths = [need.path for need in wanted if need.path and canonicalize_name(need.requirement.name) in words]
    return " and ".join(dict.fromkeys(paths)) or "build.requires"


def _silent_index(output: str, supply: Supply) -> list[Problem]:
    """Says that the index gave no answer. pip goes on with what lies here, and then the build would be another one from
    hour to hour."""
    reasons = re.findall(
        r"(Connection refused|Name or service not known|Temporary failure in name resolution|timed out"
        r"|Network is unreachable|CERTIFICATE_VERIFY_FAILED|(?<=HTTP error )\d+)",
        output,
    )
    if supply.index is None or not reasons:
        return []
    found = f"{supply.index}, which can't be reached ({reasons[0]})"
    return [
        Problem("build.index", found, "an index of wheels, or none: then only build.wheels are looked at")
    ]


def _absent(name: str, output: str, wanted: Sequence[Wanted], supply: Supply, target: Target) -> Problem:
    """Says which requirement has no wheel, and the nearest thing that is there."""
    asked = [need for need in wanted if canonicalize_name(need.requirement.name) == name]
    places = " and ".join(dict.fromkeys(need.path for need in asked if need.path)) or "build.wheels"
    requirement = " and ".join(str(need.requirement) for need in asked) or _line_of(name, output)
    near = " ".join(_near(name, supply, target, output))
    return Problem(
        places,
        f"{requirement}, of which no wheel fits in {supply.searched}{f': {near}' if near else ''}",
        f"a requirement that a wheel there fulfils, for CPython {target.python} on {target.tags[0].platform}"
        + ("" if near else _spelled(name, supply) or _elsewhere(supply)),
    )


def _elsewhere(supply: Supply) -> str:
    return "" if supply.index else "; or build.index, the address of an index that has one"


def _line_of(name: str, output: str) -> str:
    """Returns the requirement of another distribution that names the absent one."""
    match = re.search(
        rf"requirement ({re.escape(name)}\S*)( \(from (?!versions)[^)]*\))?", output, flags=re.I
    )
    return f"{match[1]}{match[2] or ''}" if match else name


def _near(name: str, supply: Supply, target: Target, output: str) -> Iterator[str]:
    """Yields the wheels of the same distribution that don't fit."""
    for path in supply.files():
        try:
            found, _, _, tags = parse_wheel_filename(os.path.basename(path))
        except InvalidWheelFilename:
            continue
        if found == name:
            platform = "" if tags & set(target.tags) else " (of another platform or Python)"
            yield os.path.basename(path) + platform
    for versions in re.findall(r"\(from versions: ([^)]+)\)", output):
        if supply.index is not None and versions != "none":
            yield f"there are {versions}"
    if others := re.findall(r"versions that require a different python version: (.*)", output):
        yield f"(of another Python: {others[0]})"


def _spelled(name: str, supply: Supply) -> str:
    names = {os.path.basename(path).partition("-")[0].replace("_", "-").lower() for path in supply.files()}
    return closest(name, sorted(names))


def take_locked(
    locked: Sequence[LockedWheel], lock_path: str, supply: Supply, target: Target, work: str, faults: Faults
) -> list[Wheel]:
    """Returns the wheels of a lock: from beside it, from ``build.wheels``, or from the addresses in it.

    Nothing is resolved, and nothing is downloaded that lies here.

    :param faults: of the lock; gets the wheels that are nowhere, that differ, or that are none
    """
    beside = os.path.dirname(os.path.abspath(lock_path))
    by_name: dict[str, list[str]] = {}
    for path in supply.files():
        by_name.setdefault(os.path.basename(path), []).append(path)
    paths: dict[str, str] = {}
    absent: dict[str, str] = {}
    for entry in locked:
        own = [os.path.join(beside, entry.path)] if entry.path is not None else []
        found = [path for path in [*own, *by_name.get(entry.file, [])] if os.path.isfile(path)]
        try:
            path_here = _of_hash(entry, found, supply)
        except LookupError as error:
            allowed = f"{entry.file} with sha256 {entry.sha256}"
            faults.add([Problem(f"packages.{entry.name}", str(error), allowed)])
            continue
        if path_here is not None:
            paths[entry.name] = path_here
        elif entry.url is not None:
            absent[entry.url] = entry.sha256
    downloaded = _brought(absent, target, work, faults)
    wheels = []
    for entry in locked:
        path_of = paths.get(entry.name) or downloaded.get(entry.url or "")
        try:
            wheels += [read_wheel(path_of, entry.url)] if path_of is not None else []
        except NotAWheel as error:
            faults.add([Problem(f"packages.{entry.name}", f"{entry.file}: {error}", "a wheel")])
    return wheels


def _brought(absent: Mapping[str, str], target: Target, work: str, faults: Faults) -> dict[str, str]:
    """Returns the downloaded wheels of a lock; none, if one of them can't be had."""
    try:
        return download(absent, target, work)
    except ToolFailed as failed:
        reason = " ".join(failed.said.error.split())
        found = f"{len(absent)} wheels that don't lie here, and an address that gave nothing or another wheel: {reason}"
        faults.add([Problem("packages", found, "wheels with the hashes of the lock")])
        return {}


def _of_hash(entry: LockedWheel, found: Sequence[str], supply: Supply) -> str | None:
    """Returns the path of the wheel that has the lock's hash; ``None`` if it must be downloaded.

    :raises LookupError: there is none and the lock has no address; the message says what there is
    """
    digests = {path: sha256_of(path) for path in found}
    for path, digest in digests.items():
        if digest == entry.sha256:
            return path
    if entry.url is not None:
        return None
    if digests:
        raise LookupError(" and ".join(f"{path} with sha256 {digest}" for path, digest in digests.items()))
    raise LookupError(f"{entry.file}, which is neither beside the lock nor in {supply.searched}")
