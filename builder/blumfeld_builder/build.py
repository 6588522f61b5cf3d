"""The steps of a build, from the manifest's text to a folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from importlib.metadata import version

import msgspec

from blumfeld.kernel.manifest.named import NamedPlugin
from blumfeld.kernel.manifest.sections import Manifest, read_manifest
from blumfeld.kernel.supervising.derivation import node_manifests
from blumfeld.plugging.errors import Faults, ManifestError, Problem, file_problem
from blumfeld_builder.artefact import deployment, pyz, sbom
from blumfeld_builder.artefact.embedded import embedded_wheel
from blumfeld_builder.out import whole_folder, write_bytes, write_text
from blumfeld_builder.target import Target, find_target
from blumfeld_builder.tools import ToolFailed
from blumfeld_builder.wheels import lock
from blumfeld_builder.wheels.fitness import misfitting, plugin_problems, surplus
from blumfeld_builder.wheels.requirements import Wanted, plugins_of, wanted_by
from blumfeld_builder.wheels.resolution import resolve, take_locked
from blumfeld_builder.wheels.supply import find_supply
from blumfeld_builder.wheels.wheel import Wheel

PLAN_FILE = "plan.json"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a build is asked for."""

    manifest: str
    """Path of the manifest."""
    out: str
    lock: str | None = None
    """Path of the lock that is taken, instead of resolving."""


class Recipe(msgspec.Struct, frozen=True):
    """A manifest with what it needs. Nothing was looked for yet."""

    request: Request
    text: str
    manifest: Manifest
    plugins: Sequence[NamedPlugin]
    wanted: Sequence[Wanted]
    target: Target

    @property
    def source(self) -> str:
        """The manifest's name in messages."""
        return self.request.manifest


def build(request: Request, tell: Callable[[str], None]) -> None:
    """Build, and write the folder ``request.out``.

    :param tell: is told of each step
    :raises ManifestError: the build can't be; nothing was written
    """
    recipe = read_recipe(request)
    with whole_folder(request.out) as folder, tempfile.TemporaryDirectory(prefix="blumfeld-build-") as work:
        try:
            wheels = chosen_wheels(recipe, work, tell)
            _write(recipe, wheels, folder, work, tell)
        except ToolFailed as failed:
            raise ManifestError(recipe.source, [Problem("", str(failed))]) from None


def read_recipe(request: Request) -> Recipe:
    """Returns the manifest with the plug-ins and requirements that it comes to.

    :raises ManifestError: all that can be said to be wrong from the manifest alone
    """
    source = request.manifest
    try:
        with open(source, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(source, [file_problem(error)]) from None
    faults = Faults(source)
    manifest = read_manifest(text, source, faults=faults)
    plugins = plugins_of(node_manifests(manifest, source, faults))
    wanted = wanted_by(manifest, plugins, faults)
    target = find_target(manifest.build.python) if faults.sound("build.python") else None
    faults.add([target] if isinstance(target, Problem) else [])
    faults.tell()
    assert isinstance(target, Target)
    return Recipe(request, text, manifest, plugins, wanted, target)


def chosen_wheels(recipe: Recipe, work: str, tell: Callable[[str], None]) -> list[Wheel]:
    """Returns the wheels of the build, from the lock or resolved, checked."""
    faults = Faults(recipe.source)
    beside = os.path.dirname(os.path.abspath(recipe.source))
    supply = find_supply(recipe.manifest.build, beside, work, faults)
    faults.tell()
    if recipe.request.lock is None:
        tell(f"resolving from {supply.searched}")
        wheels = resolve(recipe.wanted, supply, recipe.target, work, faults)
    else:
        tell(f"taking the wheels of {recipe.request.lock}")
        faults = Faults(recipe.request.lock)
        entries = lock.read_lock(_text_of(recipe.request.lock), faults.source, recipe.wanted, recipe.target)
        wheels = take_locked(entries, recipe.request.lock, supply, work, faults)
        faults.tell()
        faults.add(misfitting(wheels, recipe.target))
    faults.add(plugin_problems(recipe.plugins, wheels))
    faults.tell()
    faults.add(surplus(recipe.plugins, recipe.wanted, wheels, recipe.target))
    faults.tell()
    return wheels


def _text_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(path, [file_problem(error)]) from None


def _write(
    recipe: Recipe, wheels: Sequence[Wheel], folder: str, work: str, tell: Callable[[str], None]
) -> None:
    text = lock.lock_text(wheels, recipe.wanted, recipe.target)
    write_text(folder, lock.FILE, text)
    copies = os.path.join(folder, lock.WHEELS)
    os.mkdir(copies)
    os.chmod(copies, 0o755)
    for wheel in wheels:
        copied = os.path.join(copies, wheel.file)
        shutil.copyfile(wheel.path, copied)
        os.chmod(copied, 0o644)
    tell(f"writing {pyz.FILE} of {len(wheels)} wheels")
    core = next(wheel.version for wheel in wheels if wheel.name == "blumfeld")
    name, data = embedded_wheel(recipe.text, text, core)
    write_bytes(work, name, data)
    path = os.path.join(folder, pyz.FILE)
    pyz.write_artefact(path, wheels, os.path.join(work, name), recipe.target, work)
    os.chmod(path, 0o755)
    tell("asking it for its plan")
    plan = pyz.ask(path, "plan", "--json", source=recipe.source, work=work, target=recipe.target)
    write_text(folder, PLAN_FILE, plan)
    bill = sbom.sbom_text(wheels, text, version("blumfeld-builder"), recipe.target)
    write_text(folder, sbom.FILE, bill)
    write_text(folder, deployment.UNIT_FILE, deployment.unit_text())
    container = deployment.containerfile_text(recipe.manifest, recipe.target)
    write_text(folder, deployment.CONTAINERFILE, container)
