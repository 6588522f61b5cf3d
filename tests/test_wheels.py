"""Each distribution is whole apart: its wheel holds what it says, and installs from a folder without a network."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path

import pytest

from blumfeld.plugging.published import IN_DEFAULT_BUILD, PUBLISHED, distribution_of
from tests.examples.stranger import Stranger, consumed, produce
from tests.test_distributions import ROOT, folders, packages_of, plugin_folders, project_of, requirements_of
from tests.wheels import Environment, held, ran, requirements

pytestmark = [pytest.mark.wheel, pytest.mark.timeout(600)]

LABORATORY = {
    "bench": "blumfeld-bench",
    "build": "blumfeld-builder",
    "new": "blumfeld-kit",
    "simulate": "blumfeld-kit",
}
"""Verb → the distribution that brings it."""
SMALL = ("consensus_kraft", "groups_classic", "net_asyncio", "replication_isr", "storage_memory")
SMALL_MANIFEST = """
[storage]
plugin = "storage_memory"
[groups]
plugins = ["groups_classic"]
[transactions]
plugin = "none"
[config]
"offsets.topic.num.partitions" = 1
"""
MODULES = [f"blumfeld_{name}" for name in sorted(PUBLISHED)]


def wheel_of(wheels: Path, distribution: str) -> Path:
    [wheel] = wheels.glob(f"{distribution.replace('-', '_')}-0*.whl")
    return wheel


def serves(environment: Environment, folder: Path, manifest: str) -> None:
    """``plan`` and ``run`` work, and a client gets what it wrote, in a group."""
    folder.mkdir()
    stranger = Stranger(environment.python, folder, manifest)
    assert "an ack means" in stranger.plan()
    with stranger.broker() as address:
        produce(address, "letters", [b"a", b"b", b"c"])
        assert consumed(address, "letters", b"c") == [b"a", b"b", b"c"]


@pytest.mark.parametrize("folder", folders(), ids=lambda p: p.name)
def test_a_wheel_holds_one_package_its_license_and_its_entry_points(folder: Path, wheels: Path) -> None:
    project = project_of(folder)["project"]
    packages, info = held(wheel_of(wheels, project["name"]))
    assert packages == {package.name for package in packages_of(folder)}
    assert info["licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    assert len(requirements(info)) == len(requirements_of(folder))
    points = info.get("entry_points.txt", b"").decode()
    for group, lines in project.get("entry-points", {}).items():
        assert f"[{group}]" in points
        assert all(f"{name} = {place}" in points.split("\n") for name, place in lines.items())


def test_the_default_build_installs_from_a_folder_without_a_network(wheels: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "fresh", wheels)
    environment.install("blumfeld-default")
    assert environment.importable(MODULES) == {f"blumfeld_{name}" for name in IN_DEFAULT_BUILD}
    serves(environment, tmp_path / "served", "")
    lacking = environment.blumfeld("plan", "--set", "network.plugin=net_uring", status=2).stderr
    assert "net_asyncio; or pip install blumfeld-net-uring" in lacking


def test_the_core_and_chosen_plugins_serve_and_nothing_else_is_importable(
    wheels: Path, tmp_path: Path
) -> None:
    environment = Environment(tmp_path / "fresh", wheels)
    environment.install("blumfeld", *(str(distribution_of(name)) for name in SMALL))
    assert environment.importable(MODULES) == {f"blumfeld_{name}" for name in SMALL}
    serves(environment, tmp_path / "served", SMALL_MANIFEST)


def test_every_plugin_installs_from_the_folder(wheels: Path, tmp_path: Path) -> None:
    """But for the archive, whose requirements are not in the folder."""
    environment = Environment(tmp_path / "fresh", wheels)
    names = [folder.name for folder in plugin_folders() if folder.name != "sink_spark"]
    environment.install("blumfeld-default", *(str(distribution_of(name)) for name in names))
    assert environment.importable(MODULES) == {f"blumfeld_{name}" for name in names}
    listed = [line.split() for line in environment.blumfeld("plugins").stdout.splitlines()]
    assert {(line[0], line[-2]) for line in listed} == {(name, distribution_of(name)) for name in names}


def test_the_core_alone_says_what_is_missing(wheels: Path, tmp_path: Path) -> None:
    """Each plug-in of the default manifest, and each verb of another distribution."""
    environment = Environment(tmp_path / "fresh", wheels)
    environment.install("blumfeld")
    for verb in ("plan", "run"):
        missing = environment.blumfeld(verb, status=2).stderr
        for name in IN_DEFAULT_BUILD - {"storage_memory"}:
            remedy = f"pip install {distribution_of(name)}, or blumfeld-default with all of the default build"
            assert f'found "{name}", which isn\'t installed; allowed: {remedy}\n' in missing
    for verb, package in {**LABORATORY, "archive": "blumfeld-archive"}.items():
        text = f"blumfeld: {verb} comes with the package {package}, which isn't installed: pip install {package}\n"
        done = environment.blumfeld(verb, "--help", status=1)
        assert (done.stdout, done.stderr) == ("", text)


def test_the_archive_is_found_without_its_requirements(wheels: Path, tmp_path: Path) -> None:
    """Each command says what to install."""
    environment = Environment(tmp_path / "fresh", wheels)
    environment.install("blumfeld")
    environment.install("--no-deps", "blumfeld-archive")
    assert " backfill " in environment.blumfeld("archive", "--help").stdout
    lacking = environment.blumfeld("archive", "sql", "SELECT 1", status=1)
    assert lacking.stderr == "blumfeld archive: pyarrow is not installed: pip install blumfeld-archive\n"


def test_the_laboratory_works_from_its_wheels(wheels: Path, tmp_path: Path) -> None:
    """The kit installs from the folder. The bench needs matplotlib and its like, which pip brings from its cache."""
    environment = Environment(tmp_path / "fresh", wheels)
    environment.install("blumfeld-kit")
    (tmp_path / "test_broker.py").write_text("def test_broker(blumfeld): assert blumfeld.port\n")
    run = (environment.python, "-m", "pytest", "-q", str(tmp_path / "test_broker.py"))
    assert "1 passed" in ran(*run, cwd=tmp_path).stdout
    assert "seed" in environment.blumfeld("simulate", "--seeds", "3", "--seconds", "5").stdout
    environment.install("blumfeld-bench", options=())
    assert " rebalance " in environment.blumfeld("bench", "--help").stdout


@pytest.mark.parametrize("folder", [f for f in folders() if f != ROOT], ids=lambda p: p.name)
def test_a_source_distribution_builds_the_same_wheel(folder: Path, wheels: Path, tmp_path: Path) -> None:
    """The root's is the whole project: tests/test_sdist.py looks at it."""
    hatchling = (sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path))
    ran(*hatchling, "-t", "sdist", cwd=folder)
    [archive] = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    ran(*hatchling, "-t", "wheel", cwd=tmp_path / archive.name.removesuffix(".tar.gz"))
    name = project_of(folder)["project"]["name"]
    assert wheel_of(tmp_path, name).read_bytes() == wheel_of(wheels, name).read_bytes()
