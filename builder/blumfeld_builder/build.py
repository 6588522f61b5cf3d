"""The steps of a build, from the manifest's text to a folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from importlib.metadata import version

import msgspec

from blumfeld.cli import built_in
from blumfeld.cli.manifest import secret_keys
from blumfeld.kernel.manifest.named import NamedPlugin
from blumfeld.kernel.manifest.sections import Manifest, read_manifest
from blumfeld.kernel.supervising.derivation import node_manifests
from blumfeld.plugging.errors import Faults, ManifestError, Problem, file_problem
from blumfeld_builder.artefact import deployment, pyz, sbom
from blumfeld_builder.artefact.embedded import build_name, embedded_wheel
from blumfeld_builder.artefact.library import plan_of, unpack
from blumfeld_builder.evidence import results
from blumfeld_builder.evidence.check import (
    document_of,
    evidence_of,
    prepare,
    refuse_failing,
    refuse_unknown,
)
from blumfeld_builder.oci import image
from blumfeld_builder.oci.base import Base, read_base
from blumfeld_builder.out import whole_folder, write_bytes, write_text
from blumfeld_builder.target import Target, find_target
from blumfeld_builder.tools import ToolFailed
from blumfeld_builder.wheels import lock
from blumfeld_builder.wheels.fitness import misfitting, plugin_problems, surplus
from blumfeld_builder.wheels.requirements import CORE, Wanted, plugins_of, wanted_by
from blumfeld_builder.wheels.resolution import resolve, take_locked
from blumfeld_builder.wheels.supply import Supply, find_supply
from blumfeld_builder.wheels.wheel import Wheel


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a build is asked for."""

    manifest: str
    """Path of the manifest."""
    out: str
    lock: str | None = None
    """Path of the lock that is taken, instead of resolving."""
    base: str | None = None
    """Path of the base of an OCI image; ``None`` writes none."""
    check: bool = False
    """Run the contract kits of the plug-ins."""
    allowed_to_fail: tuple[str, ...] = ()
    """Plug-ins whose kits may fail."""


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


def build(request: Request, tell: Callable[[str], None]) -> list[str]:
    """Build, and write the folder ``request.out``.

    :param tell: is told of each step
    :return: the manifest's keys that hold secrets: the artefact has the manifest as it is
    :raises ManifestError: the build can't be; nothing was written
    """
    recipe = read_recipe(request)
    refuse_unknown(request.allowed_to_fail, recipe.plugins)
    with whole_folder(request.out) as folder, tempfile.TemporaryDirectory(prefix="blumfeld-build-") as work:
        try:
            supply = supply_of(recipe, work)
            wheels = chosen_wheels(recipe, supply, work, tell)
            base = None
            if request.base is not None:
                tell(f"reading {request.base}")
                base = read_base(os.path.abspath(request.base), recipe.target.python, work)
            writing = Writing(recipe, wheels, folder, work, tell)
            if request.check:
                writing.check(supply)
            writing.write(base)
        except ToolFailed as failed:
            raise ManifestError(recipe.source, [Problem("", str(failed))]) from None
    return secret_keys(recipe.manifest)


def read_recipe(request: Request) -> Recipe:
    """Returns the manifest with the plug-ins and requirements that it comes to.

    :raises ManifestError: all that can be said to be wrong from the manifest alone
    """
    source = request.manifest
    text = _text_of(source)
    faults = Faults(source)
    manifest = read_manifest(text, source, faults=faults)
    plugins = plugins_of(node_manifests(manifest, source, faults))
    wanted = wanted_by(manifest, plugins, faults)
    target = find_target(manifest.build.python) if faults.sound("build.python") else None
    faults.add([target] if isinstance(target, Problem) else [])
    faults.tell()
    assert isinstance(target, Target)
    return Recipe(request, text, manifest, plugins, wanted, target)


def supply_of(recipe: Recipe, work: str) -> Supply:
    """Returns where the manifest says that wheels are, with its sources built."""
    faults = Faults(recipe.source)
    beside = os.path.dirname(os.path.abspath(recipe.source))
    supply = find_supply(recipe.manifest.build, beside, work, faults)
    faults.tell()
    return supply


def chosen_wheels(recipe: Recipe, supply: Supply, work: str, tell: Callable[[str], None]) -> list[Wheel]:
    """Returns the wheels of the build, from the lock or resolved, checked."""
    faults = Faults(recipe.source)
    if recipe.request.lock is None:
        tell(f"resolving from {supply.searched}")
        wheels = resolve(recipe.wanted, supply, recipe.target, work, faults)
    else:
        tell(f"taking the wheels of {recipe.request.lock}")
        faults = Faults(recipe.request.lock)
        entries = lock.read_lock(_text_of(recipe.request.lock), faults.source, recipe.wanted, recipe.target)
        wheels = take_locked(entries, recipe.request.lock, supply, recipe.target, work, faults)
        faults.tell()
        faults.add(misfitting(wheels, recipe.target))
    faults.add(plugin_problems(recipe.plugins, wheels))
    faults.tell()
    faults.add(surplus(recipe.plugins, recipe.wanted, wheels, recipe.target))
    faults.tell()
    return wheels


def _text_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(path, [file_problem(error)]) from None


class Writing:
    """Writes the folder of a build, from its wheels."""

    def __init__(
        self, recipe: Recipe, wheels: Sequence[Wheel], folder: str, work: str, tell: Callable[[str], None]
    ) -> None:
        self._recipe = recipe
        self._wheels = wheels
        self._folder = folder
        self._work = work
        self._tell = tell
        self._lock = lock.lock_text(wheels, recipe.wanted, recipe.target)
        self._library = os.path.join(work, "library")

    def check(self, supply: Supply) -> None:
        """Run the contract kits, and write what they say.

        :raises ManifestError: the kit can't be had, or a plug-in fails its own without leave
        """
        recipe, request = self._recipe, self._recipe.request
        self._tell("checking the plug-ins with their contract kits")
        prepared = prepare(self._wheels, supply, recipe.target, self._work, recipe.source)
        gathered = evidence_of(prepared, recipe.plugins, request.allowed_to_fail, self._tell)
        refuse_failing(gathered, recipe.plugins, recipe.source)
        document = document_of(prepared, self._lock, gathered)
        write_text(self._folder, results.FILE, results.document_text(document))

    def write(self, base: Base | None) -> None:
        """Write all files, and an image if there is a base for it.

        :raises ManifestError: the broker of the build refuses its manifest
        """
        recipe, folder = self._recipe, self._folder
        write_text(folder, lock.FILE, self._lock)
        self._copy_wheels()
        self._tell("asking the broker for its plan")
        unpack([*(wheel.path for wheel in self._wheels), self._embedded("")], self._library)
        plan = plan_of(self._library, recipe.source, recipe.target, self._work)
        write_text(folder, built_in.PLAN, plan)
        embedded = self._embedded(plan)
        self._write_pyz(embedded, plan)
        bill = sbom.sbom_text(self._wheels, self._lock, version("blumfeld-builder"), recipe.target)
        write_text(folder, sbom.FILE, bill)
        write_text(folder, deployment.UNIT_FILE, deployment.unit_text(recipe.manifest))
        container = deployment.containerfile_text(recipe.manifest, recipe.target)
        write_text(folder, deployment.CONTAINERFILE, container)
        if base is not None:
            self._tell("writing the image")
            unpack([embedded], self._library)
            image.compile_library(self._library, recipe.target, self._work)
            ports = deployment.ports_of(recipe.manifest)
            image.write_image(os.path.join(folder, image.FOLDER), base, self._library, ports, self._work)

    def _copy_wheels(self) -> None:
        copies = os.path.join(self._folder, lock.WHEELS)
        os.mkdir(copies)
        os.chmod(copies, 0o755)
        for wheel in self._wheels:
            copied = os.path.join(copies, wheel.file)
            shutil.copyfile(wheel.path, copied)
            os.chmod(copied, 0o644)

    def _embedded(self, plan: str) -> str:
        """Write the wheel with what the artefact knows of itself, and return its path."""
        core = next(wheel.version for wheel in self._wheels if wheel.name == CORE)
        texts = {
            built_in.MANIFEST: self._recipe.text,
            built_in.LOCK: self._lock,
            built_in.NAME: build_name(self._recipe.text, self._lock, self._recipe.source),
            built_in.PLAN: plan,
        }
        name, data = embedded_wheel(texts, core)
        write_bytes(self._work, name, data)
        return os.path.join(self._work, name)

    def _write_pyz(self, embedded: str, plan: str) -> None:
        recipe = self._recipe
        self._tell(f"writing {pyz.FILE} of {len(self._wheels)} wheels")
        path = os.path.join(self._folder, pyz.FILE)
        pyz.write_artefact(path, self._wheels, embedded, recipe.target, self._work)
        os.chmod(path, 0o755)
        self._tell(f"starting {pyz.FILE}")
        told = pyz.ask(path, "plan", "--json", source=recipe.source, work=self._work, target=recipe.target)
        if told != plan:
            found = f"{pyz.FILE} tells another plan than its wheels do"
            raise ManifestError(recipe.source, [Problem("", found)])
