"""The manifests of examples/builds/: each composes and names what brings its plug-ins; the smallest one is built."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from blumfeld.kernel.composing.plan import make_plan
from blumfeld.kernel.manifest.sections import read_manifest
from blumfeld.kernel.supervising.derivation import node_manifests
from blumfeld.plugging.published import PUBLISHED
from blumfeld.plugging.registry import GROUP, Registry
from campaigns.builds import BUILDS, BYTES_MAX, measured
from tests.examples.stranger import EXAMPLES

MANIFESTS = sorted(BUILDS.glob("*.toml"))


def examples_of(requires: tuple[str, ...]) -> list[Path]:
    """The folders of the examples among some requirements."""
    names = [Requirement(line).name.replace("-", "_") for line in requires]
    return [EXAMPLES / name for name in names if (EXAMPLES / name).is_dir()]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda p: p.stem)
def test_a_build_composes_and_requires_what_brings_its_plugins(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = read_manifest(path.read_text(), path.name)
    points = list(entry_points(group=GROUP))
    brought = examples_of(manifest.build.requires)
    for folder in brought:
        monkeypatch.syspath_prepend(folder)
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        places = project["entry-points"][GROUP]
        points += [EntryPoint(name, place, GROUP) for name, place in places.items()]
    plans = [make_plan(node, path.name, Registry(points)) for node in node_manifests(manifest, path.name)]
    strangers = {plugin.name for plan in plans for plugin in plan.plugins} - PUBLISHED
    assert len(plans) == manifest.nodes
    assert len(strangers) == len(brought)
    assert {(BUILDS / place).resolve() for place in manifest.build.wheels[1:]} == set(brought)


def test_the_page_names_every_build() -> None:
    page = (BUILDS / "README.md").read_text()
    assert len(MANIFESTS) == 7
    assert not [path.name for path in MANIFESTS if f"({path.name})" not in page]


@pytest.mark.wheel
@pytest.mark.timeout(900)
def test_the_smallest_build_is_small_serves_clients_and_holds_nothing_else(
    wheels: Path, tmp_path: Path
) -> None:
    text = (BUILDS / "smallest.toml").read_text()
    manifest = tmp_path / "smallest.toml"
    manifest.write_text(text.replace("../../dist", str(wheels)))
    figures = measured(manifest, tmp_path, rounds=1)
    assert not figures.wrong
    assert 0 < figures.bytes <= BYTES_MAX["smallest"]
