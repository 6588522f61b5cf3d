"""Runs the contract kits: the build's wheels and the kit, unpacked beside each other, and pytest for each plug-in."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from xml.etree.ElementTree import ParseError

import msgspec
from packaging.requirements import Requirement

from blumfeld.kernel.manifest.named import NamedPlugin
from blumfeld.plugging.errors import Faults, ManifestError, Problem, one_of, shown
from blumfeld_builder.artefact.library import unpack
from blumfeld_builder.evidence.results import Document, Evidence, Results, Untried, failing, results
from blumfeld_builder.target import Target
from blumfeld_builder.tools import run_to_end
from blumfeld_builder.wheels.requirements import Wanted
from blumfeld_builder.wheels.resolution import resolve
from blumfeld_builder.wheels.supply import Supply
from blumfeld_builder.wheels.wheel import Wheel

OPTION, ALLOW = "--check", "--allow-failing"
KIT = "blumfeld-kit"
OF_ANY = "blumfeld_kit.plugin_kits.tests"
VARIABLE = "BLUMFELD_KIT_OF"
TIMEOUT_S = 1800
"""Bound on the kit of one plug-in."""
RAN, SOME_FAILED, NOTHING_RAN = 0, 1, 5
"""Exit statuses of pytest after which its report tells all."""


class Check(msgspec.Struct, frozen=True):
    """The environment in which kits run."""

    library: str
    kit_version: str
    wheels: Sequence[Wheel]
    target: Target
    work: str


def prepare(wheels: Sequence[Wheel], supply: Supply, target: Target, work: str, source: str) -> Check:
    """Returns an environment with exactly these wheels, the kit, and what it needs beside them.

    :raises ManifestError: the kit isn't there, or needs other versions
    """
    own = os.path.join(work, "check")
    os.mkdir(own)
    wanted = [Wanted(Requirement(f"{wheel.name}=={wheel.version}"), OPTION) for wheel in wheels]
    wanted.append(Wanted(Requirement(KIT), OPTION))
    here = {os.path.dirname(wheel.path): None for wheel in wheels}
    places = msgspec.structs.replace(supply, folders=(*supply.folders, *here))
    found = resolve(wanted, places, target, own, Faults(source))
    library = os.path.join(own, "library")
    unpack([wheel.path for wheel in found], library)
    [kit] = [wheel.version for wheel in found if wheel.name == KIT]
    return Check(library, kit, wheels, target, own)


def evidence_of(
    check: Check, plugins: Sequence[NamedPlugin], allowed: Collection[str], tell: Callable[[str], None]
) -> list[Evidence]:
    """Run the kit of each plug-in."""
    gathered = []
    for plugin in plugins:
        evidence = _run(check, plugin, plugin.name in allowed)
        gathered.append(evidence)
        untried = sum(len(entry.tests) for entry in evidence.not_tried)
        counts = f"{evidence.passed} passed, {len(evidence.failed)} failed, {untried} not tried"
        tell(f"  {plugin.name}: {counts}")
    return gathered


def document_of(check: Check, lock: str, gathered: Sequence[Evidence]) -> Document:
    """Returns what is written beside the lock."""
    digest = hashlib.sha256(lock.encode()).hexdigest()
    return Document(kit_version=check.kit_version, lock=f"sha256:{digest}", plugins=tuple(gathered))


def refuse_failing(gathered: Sequence[Evidence], plugins: Sequence[NamedPlugin], source: str) -> None:
    """:raises ManifestError: a plug-in fails its kit without leave"""
    paths = {plugin.name: plugin.path for plugin in plugins}
    problems = [
        Problem(
            paths[evidence.plugin],
            f"{shown(evidence.plugin)}, which fails its kit: {', '.join(evidence.failed[:5])}"
            + (f" and {len(evidence.failed) - 5} more" if len(evidence.failed) > 5 else ""),
            f"a plug-in that passes {evidence.kit}, or {ALLOW} {evidence.plugin}",
        )
        for evidence in failing(gathered)
    ]
    if problems:
        raise ManifestError(source, problems)


def refuse_unknown(allowed: Collection[str], plugins: Sequence[NamedPlugin]) -> None:
    """:raises ManifestError: leave is given to a plug-in that isn't in the build"""
    names = sorted(plugin.name for plugin in plugins)
    problems = [Problem(ALLOW, shown(name), one_of(name, names)) for name in allowed if name not in names]
    if problems:
        raise ManifestError("", problems)


def _run(check: Check, plugin: NamedPlugin, allowed: bool) -> Evidence:
    [wheel] = [wheel for wheel in check.wheels if plugin.name in wheel.plugins]
    module = wheel.kits.get(plugin.name, OF_ANY)
    report = os.path.join(check.work, f"{plugin.name}.xml")
    of = {"name": plugin.name, "role": plugin.role, "options": plugin.options}
    added = {"PYTHONPATH": check.library, VARIABLE: msgspec.json.encode(of).decode()}
    command = [check.target.executable, "-S", "-m", "pytest", "-q", "--pyargs", module]
    command += [
        "-p",
        "no:cacheprovider",
        "--import-mode=importlib",
        f"--config-file={os.devnull}",
        f"--rootdir={check.work}",
        f"--junitxml={report}",
    ]
    status, said = _ran(command, check.work, added)
    passed, failed, untried = _read(report) or (0, (f"pytest {module}: {said}, and no report",), ())
    if status not in (RAN, SOME_FAILED, NOTHING_RAN) and not failed:
        failed = (f"pytest {module}: {said}",)
    elif not (passed or failed or untried):
        untried = (Untried((), f"{module} has no test"),)
    return Evidence(
        plugin=plugin.name,
        role=plugin.role,
        distribution=wheel.name,
        version=wheel.version,
        kit=module,
        passed=passed,
        failed=failed,
        not_tried=untried,
        allowed_to_fail=allowed,
    )


def _read(report: str) -> Results | None:
    """Returns what a report says; ``None`` if pytest was ended before it wrote one."""
    try:
        with open(report, "rb") as file:
            return results(file.read())
    except (FileNotFoundError, ParseError):
        return None


def _ran(command: Sequence[str], work: str, env: Mapping[str, str]) -> tuple[int | None, str]:
    """Returns the exit status of pytest, ``None`` after the time-out, and what became of it in words."""
    try:
        status, said = run_to_end(command, cwd=work, env=env, timeout_s=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return None, f"no end in {TIMEOUT_S} s"
    errors = [
        line for line in (*said.output.splitlines(), *said.error.splitlines()) if line.startswith("ERROR")
    ]
    # The evidence of equal builds is equal, and this folder has another name each time.
    return status, ": ".join([f"exit status {status}", *errors[-1:]]).replace(work, ".")
